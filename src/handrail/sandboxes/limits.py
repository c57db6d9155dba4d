"""What a box may hold, and what its processes may take."""

from __future__ import annotations

from collections.abc import Mapping

from handrail.ports import SandboxJob

NOBODY = 65534
"""Who a box belongs to when root starts it: `RLIMIT_NPROC` does not hold root."""
BOX_BYTES = 64 * 1024 * 1024
TMP_BYTES = 32 * 1024 * 1024
MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_INODES = 20_000
"""Files, folders and links in each folder in memory, empty ones too: 20 MB of the kernel's memory."""
MAX_PROCESSES = 40


def process_limits(job: SandboxJob) -> Mapping[str, int]:
    """Return what holds for each process of a job, by the names of the module `resource`."""
    return {
        "RLIMIT_CPU": int(job.timeout_s) + 2,
        "RLIMIT_AS": job.memory_bytes,
        "RLIMIT_FSIZE": MAX_FILE_BYTES,
        "RLIMIT_NOFILE": 64,
        "RLIMIT_CORE": 0,
    }
