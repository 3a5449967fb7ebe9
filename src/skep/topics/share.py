"""Who of a group reads which partition (pure): shares differ by at most one, and what need not move stays."""

from collections.abc import Mapping, Sequence


def fair(owners: Mapping[int, str | None], members: Sequence[str]) -> dict[int, str]:
    """`owners`: partition -> who reads it now. With no members nobody reads anything."""
    if not members:
        return {}
    many, extra = divmod(len(owners), len(members))
    held: dict[str, list[int]] = {member: [] for member in members}
    for partition, owner in sorted(owners.items()):
        if owner in held:
            held[owner].append(partition)
    # whoever holds most keeps the one partition more
    ranked = sorted(members, key=lambda member: (-len(held[member]), member))
    quota = {member: many + (n < extra) for n, member in enumerate(ranked)}
    kept = {partition: member for member in members for partition in held[member][: quota[member]]}
    free = [partition for partition in sorted(owners) if partition not in kept]
    for member in ranked:
        short = quota[member] - min(len(held[member]), quota[member])
        for partition in free[:short]:
            kept[partition] = member
        free = free[short:]
    return kept
