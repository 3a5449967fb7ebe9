"""The corpus: source of the Linux kernel from Debian's `linux-source-6.1`, and the questions asked of it."""

import subprocess
from pathlib import Path

TARBALL = Path("/usr/src/linux-source-6.1.tar.xz")
PARTS = ("drivers/net", "fs", "kernel", "mm", "sound", "drivers/media")
MOST_BYTES = 2_000_000

#: name, query, csearch arguments, ripgrep arguments
QUERIES: list[tuple[str, str, list[str], list[str]]] = []


def _ask(name: str, query: str, pattern: str, *, literal: bool = False, ignore: bool = False, path: str = "") -> None:
    csearch = ["-n", *(["-i"] if ignore else []), *(["-f", path] if path else [])]
    escaped = "".join("\\" + c if c in "\\.+*?()[]{}^$|" else c for c in pattern) if literal else pattern
    globs = ["-g", "*" + path.removesuffix("$").replace("\\", "")] if path else []
    ripgrep = ["-n", *(["-i"] if ignore else []), *(["-F"] if literal else []), *globs, "-e", pattern]
    QUERIES.append((name, query, [*csearch, "--", escaped], ripgrep))


_ask("rare word", "case:yes e1000_phy_hw_reset_generic", "e1000_phy_hw_reset_generic", literal=True)
_ask("word", "case:yes spin_lock_irqsave", "spin_lock_irqsave", literal=True)
_ask("common word", "case:yes return", "return", literal=True)
_ask("call", 'case:yes "kmalloc("', "kmalloc(", literal=True)
_ask("member", "case:yes ->next", "->next", literal=True)
_ask("phrase", 'case:yes "struct file_operations"', "struct file_operations", literal=True)
_ask("absent", "case:yes thisisnowhere_tobefound", "thisisnowhere_tobefound", literal=True)
_ask("short", "case:yes zq", "zq", literal=True)
_ask("ignoring case", "case:no skb_put", "skb_put", literal=True, ignore=True)
_ask("ignoring case, rare", "case:no Mississippi", "Mississippi", literal=True, ignore=True)
_ask("ignoring case, common", "case:no todo", "todo", literal=True, ignore=True)
_ask("regex", r"case:yes /spin_(un)?lock_irq(save|restore)\(/", r"spin_(un)?lock_irq(save|restore)\(")
_ask("regex, definition", r"case:yes /^static int \w+_probe\(/", r"^static int \w+_probe\(")
_ask("regex, gap", r"case:yes /kzalloc\(.*GFP_ATOMIC/", r"kzalloc\(.*GFP_ATOMIC")
_ask("regex, alternatives", "case:yes /ENOMEM|EINVAL|EBUSY/", "ENOMEM|EINVAL|EBUSY")
_ask("regex, class", r"case:yes /0x[0-9a-f]{8}ULL/", r"0x[0-9a-f]{8}ULL")
_ask("regex, poor", r"case:yes /[a-z]+_[0-9]{5}\b/", r"[a-z]+_[0-9]{5}\b")
_ask("regex, ignoring case", r"case:no /copyright.*(ibm|intel)/", r"copyright.*(ibm|intel)", ignore=True)
_ask("regex, rare", r"case:yes /\bbtrfs_[a-z]+_reloc_root\w*\(/", r"\bbtrfs_[a-z]+_reloc_root\w*\(")
_ask("path", r"case:yes module_init file:\.c$", "module_init", literal=True, path=r"\.c$")
_ask("path, rare", r"case:yes mutex_lock file:Kconfig$", "mutex_lock", literal=True, path="Kconfig$")
_ask("two words far apart", "case:yes /list_for_each.*rcu.*lock/", "list_for_each.*rcu.*lock")


def unpack(folder: Path, whole: bool) -> None:
    top = "linux-source-6.1"
    wanted = [top] if whole else [f"{top}/{part}" for part in PARTS]
    subprocess.run(["tar", "-xJf", TARBALL, "-C", folder, *wanted], check=True)
    for path in folder.rglob("*"):  # the same files for everybody
        if path.is_symlink() or (path.is_file() and not _is_text(path)):
            path.unlink()


def _is_text(path: Path) -> bool:
    return path.stat().st_size <= MOST_BYTES and b"\0" not in path.read_bytes()[:8192]
