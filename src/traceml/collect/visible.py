"""Says which physical device a rank means by `cuda:1`: as CUDA reads CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER."""

from __future__ import annotations

from typing import Final, Optional, Sequence

_BY_BUS: Final = "PCI_BUS_ID"


def entry_of(ordinal: int, visible: Optional[str]) -> Optional[str]:
    """What stands for a device in CUDA_VISIBLE_DEVICES: an index ("3") or the beginning of a UUID ("GPU-5f", "MIG-c0").

    Args:
        ordinal: As torch counts: the n-th of what the process may see.
        visible: The variable's value; None where it is not set.

    Returns:
        None where the process cannot see that many. The list ends at the first entry that is none; an entry that
        comes twice makes CUDA see nothing at all.
    """
    if visible is None:
        return str(ordinal)
    entries: list[str] = []
    for entry in (text.strip() for text in visible.split(",")):
        if entry.isdigit():
            entries.append(str(int(entry)))
        elif entry.startswith(("GPU-", "MIG-")):
            entries.append(entry)
        else:
            break
    if len(set(entries)) < len(entries) or ordinal >= len(entries):
        return None
    return entries[ordinal]


def by_index(entry: str, names: Sequence[str], order: str) -> Optional[int]:
    """The driver's index of the device that CUDA counts as `entry`; None where that cannot be told.

    The driver counts by the bus. CUDA counts the fastest first, unless it is told to count by the bus too: among
    devices of one kind that is the same.

    Args:
        entry: What `entry_of` gives.
        names: Of all devices, as the driver counts.
        order: CUDA_DEVICE_ORDER.
    """
    index = int(entry)
    is_sure = order == _BY_BUS or len(set(names)) == 1
    return index if is_sure and index < len(names) else None


def by_uuid(entry: str, uuids: Sequence[str]) -> Optional[str]:
    """The one device whose UUID begins like `entry`, as CUDA takes it; None where none does, or several do."""
    found = [uuid for uuid in uuids if uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None
