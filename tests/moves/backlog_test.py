#!/usr/bin/python3
"""What a program notices of a move or a suspension while it has much work queued, or only enqueues."""

import sys
import threading
import time
import unittest

sys.dont_write_bytecode = True

from subjects import SECONDS, SLOWER, TestCase  # noqa: E402

NOISE = 0.015 * SLOWER  # seconds that a busy system may add to a drain


class Backlog(TestCase):
    def drain_with(self, kernels, place):
        """Seconds that the device needed to finish, and that two of the kernels take."""
        subject = self.subject("backlog", kernels, 10)
        answers = []
        mover = threading.Thread(target=lambda: answers.append(subject.ask("move", **place)))
        mover.start()
        kernel = float(subject.say("more")) / 1000  # so there are always as many more to come
        mover.join(SECONDS + kernels)
        self.assertTrue(answers and answers[0]["ok"], answers)
        drain = answers[0]["drain_seconds"]
        print(f"{kernels} kernels of {1000 * kernel:.1f} ms: drain {1000 * drain:.1f} ms, stop "
              f"{1000 * answers[0]['stop_seconds']:.1f} ms", file=sys.stderr)
        subject.process.stdin.close()
        subject.process.stdin = None
        output, errors = subject.process.communicate(timeout=SECONDS + 4 * kernels * kernel)
        self.assertTrue(output.strip().endswith("right"), output + errors)
        return drain, 2 * kernel

    def longest_call(self, seconds, words):
        """In milliseconds, from when a program is suspended until it goes on elsewhere. What other threads and other virtual
        machines took of the core meanwhile is shown, but doesn't count: a thread that calls nothing loses milliseconds, too.
        Neither do calls before and after: the device works then."""
        subject = self.subject("enqueue", words)
        self.assertTrue(subject.ask("suspend")["ok"])
        start = time.monotonic()
        time.sleep(seconds)
        end = time.monotonic()
        answer = subject.ask("resume")
        self.assertTrue(answer["ok"], answer)
        end += answer["phases"][-1]["start"]  # the switch is over
        told = subject.end()
        self.assertGreater(told["rounds"], 500 * seconds / SLOWER)
        longest, by_clock, outside = (max(times, default=0.1) for times in (
            [own for when, took, own in told["calls"] if start <= when <= end],
            [took for when, took, own in told["calls"] if start <= when <= end],
            [own for when, took, own in told["calls"] if not start <= when <= end]))
        print(f"{told['rounds']} calls, {seconds} s suspended: longest {longest:.2f} ms, by the clock {by_clock:.2f}, "
              f"before and after {outside:.2f}", file=sys.stderr)
        return longest


class Short(Backlog):
    def test_drain(self):
        drain, two = self.drain_with(100, {"to": "local", "device": "0:1"})
        self.assertLessEqual(drain, two + NOISE)

    def test_thread_that_only_enqueues(self):
        # The best of three: other programs take the memory's and the core's time as well.
        longest = min(self.longest_call(1, 64) for _ in range(3))
        self.assertLess(longest, 1 * SLOWER)

    def test_thread_that_only_enqueues_for_a_large_buffer(self):
        longest = min(self.longest_call(1, 16 << 20) for _ in range(3))
        self.assertLess(longest, 1 * SLOWER)


class Long(Backlog):
    def test_drain_of_ten_thousand_kernels(self):
        drain, two = self.drain_with(10000, {"to": self.server().address})
        self.assertLessEqual(drain, two + NOISE)

    def test_thread_that_only_enqueues_for_ten_seconds(self):
        longest = min(self.longest_call(10, 16 << 20) for _ in range(3))
        self.assertLess(longest, 1 * SLOWER)


if __name__ == "__main__":
    unittest.main(verbosity=2)
