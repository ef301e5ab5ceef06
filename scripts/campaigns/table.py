"""The campaigns: name, and the module beside this one that has it.

A module has

    its docstring                    the first line says what the campaign shows
    case(seed, number)               does case ``number`` of the run of ``seed``, always the same;
                                     returns how much was done, {"images": 500, ...}, what is
                                     counted first; raises where something is wrong
    CASE_SECONDS (may be absent)     a case that takes longer is a failure; default 600
"""

from __future__ import annotations

CAMPAIGNS = {
    "power-cuts": "power_cuts_campaign",
    "io-faults": "io_faults_campaign",
    "model": "long_machine_campaign",
    "state-machine": "state_machine",
    "combined": "combined_campaign",
    "head-only": "head_only_campaign",
    "reads": "reads_campaign",
    "power-ext4": "power_ext4",
    "power-xfs": "power_xfs",
    "kill": "kill",
    "full-disk": "full_disk_sizes",
    "interrupts": "interrupts",
    "no-memory": "no_memory_campaign",
    "openers": "openers_campaign",
    "interleaved": "interleaved_campaign",
    "strace": "strace_faults",
    "threads": "threads",
    "switches": "switches",
    "soak": "soak",
    "mutants": "mutants",
    "corruption": "corruption",
    "hostile": "hostile",
    "closed-stores": "closed_stores",
    "speculation": "speculation",
    "streams": "streams",
}
