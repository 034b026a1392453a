"""Ratios of runs that took turns, with intervals."""

import itertools
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


def interval(rounds):
    """(ratio, low, high) from the logarithms of each round's turns: the middle of all of them, with its 95% interval by
    resampling rounds and the turns within."""
    chance = random.Random(1)
    means = []
    for _ in range(RESAMPLES):
        drawn = [chance.choices(turns, k=len(turns)) for turns in chance.choices(rounds, k=len(rounds))]
        means.append(middle_mean(itertools.chain.from_iterable(drawn)))
    means.sort()
    points = (middle_mean(itertools.chain.from_iterable(rounds)), means[int(0.025 * RESAMPLES)],
              means[int(0.975 * RESAMPLES) - 1])
    return tuple(map(math.exp, points))
