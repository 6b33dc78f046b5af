# SPDX-License-Identifier: Apache-2.0
"""Times what PyTorch computes as `tileops bench` times ours."""
import statistics
import time

import torch

LONG_US = 2e6  # a call that takes this long is timed once
SETTLE_US = 3e5  # a GPU's clock at its power limit follows the load of the last tenths of a second


class Timer:
    """Times calls as `tileops bench` does; microseconds of one call."""

    def __init__(self, device, seconds, rest_ms=0, in_turn=False):
        self.gpu, self.budget, self.rest_ms, self.in_turn = device == "cuda", seconds * 1e6, rest_ms, in_turn
        size = 2 * torch.cuda.get_device_properties(0).L2_cache_size if self.gpu else 8 << 20
        self.flush = torch.zeros(size, dtype=torch.uint8, device=device)

    def once(self, call, cold):
        if cold:
            self.flush.add_(1)
        if not self.gpu:
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) * 1e6
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def sample(self, calls, cold):
        times, total = [], 0.0
        while len(times) < 3 or (total < self.budget / 2 and len(times) < 60):
            time.sleep(self.rest_ms * 1e-3)
            times.append(self.once(calls[len(times) % len(calls)], cold))
            total += times[-1]
        return statistics.median(times)

    def settle(self, together):
        spent = 0.0
        while spent < SETTLE_US:
            spent += self.once(together, cold=False)

    def measure_in_turn(self, calls_of):
        """As measure, of several at once: a sample of each in turn, so that all meet the same clock. All must be
        captured."""
        graphs = {}
        for name, calls in calls_of.items():
            for call in calls:
                call()
            torch.cuda.synchronize()
            graphs[name] = ([capture(call).replay for call in calls], capture(lambda: [call() for call in calls]).replay)
        times = {name: ([], []) for name in graphs}
        spent, turn = 0.0, 0
        while turn < 6 or (spent < self.budget * len(graphs) and turn < 60):
            for name, (singles, together) in list(graphs.items())[:: 1 if turn % 2 else -1]:
                time.sleep(self.rest_ms * 1e-3)
                times[name][0].append(self.once(singles[turn % len(singles)], cold=True))
                times[name][1].append(self.once(together, cold=False) / len(singles))
                spent += times[name][0][-1] + times[name][1][-1] * len(singles)
            turn += 1
        return {name: {"single_us": statistics.median(single), "back_to_back_us": statistics.median(together),
                       "captured": True} for name, (single, together) in times.items()}

    def measure(self, calls):
        """Calls that cannot be captured are timed eagerly, the host's time with them."""
        first = self.once(calls[0], cold=True)
        if first > LONG_US:
            return {"single_us": first, "back_to_back_us": first, "captured": False}
        for call in calls[1:]:
            call()
        together = lambda: [call() for call in calls]
        singles, captured = calls, False
        if self.gpu:
            torch.cuda.synchronize()
            try:
                graphs = [capture(call) for call in calls]
                singles, together = [graph.replay for graph in graphs], capture(together).replay
                captured = True
            except RuntimeError:
                torch.cuda.synchronize()
            if not self.rest_ms:
                self.settle(together)
        return {
            "single_us": self.sample(singles, cold=True),
            "back_to_back_us": self.sample([together], cold=False) / len(calls),
            "captured": captured,
        }


def capture(work):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph
