# SPDX-License-Identifier: Apache-2.0
"""Times what PyTorch computes as `tileops bench` times ours."""
import statistics
import time

import torch

LONG_US = 2e6  # a call that takes this long is timed once
SETTLE_US = 3e5  # a GPU's clock at its power limit follows the load of the last tenths of a second


class Timer:
    """Times calls as `tileops bench` does; microseconds of one call."""

    def __init__(self, device, seconds, rest_ms=0):
        self.gpu, self.budget, self.rest_ms = device == "cuda", seconds * 1e6, rest_ms
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
