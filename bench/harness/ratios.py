"""Ratios of runs that took turns, with intervals."""

import math
import random
import statistics

RESAMPLES = 2000


def middle_mean(values):
    """The mean of the middle half: no outlier counts, and it varies less than the median."""
    ordered = sorted(values)
    cut = len(ordered) // 4
    return statistics.fmean(ordered[cut:len(ordered) - cut])


def log_ratio(value, *others):
    """Against the geometric mean of the others of the same round: what slows the machine for a while slows them all."""
    return math.log(value) - statistics.fmean(map(math.log, others))


def interval(log_ratios):
    """(ratio, low, high): the middle of all rounds, with its 95% interval by resampling them."""
    chance = random.Random(1)
    means = sorted(middle_mean(chance.choices(log_ratios, k=len(log_ratios))) for _ in range(RESAMPLES))
    points = (middle_mean(log_ratios), means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1])
    return tuple(map(math.exp, points))
