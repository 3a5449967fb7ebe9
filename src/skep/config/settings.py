"""Every setting: its name, default and meaning. `skep.toml`, then SKEP_* variables, then flags.

The struct is the single list: the example file, `skep config` and the documentation are made from it.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.sources.model import SourceSettings


def _about(text: str) -> Meta:
    return Meta(description=text)


def _positive(text: str) -> Meta:
    return Meta(description=text, gt=0)


def _natural(text: str) -> Meta:
    return Meta(description=text, ge=0)


Seconds = float
Names = tuple[str, ...]
PollRule = Literal["share", "age", "cube_root"]
Role = Literal["coordinator", "manager", "aggregator", "worker"]
ROLES: tuple[Role, ...] = ("coordinator", "manager", "aggregator", "worker")


class HostLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table `[[host]]`: other limits for one upstream host, named as in its URLs, with the port if there is one."""

    name: str
    concurrency: Annotated[int, Meta(gt=0)] | None = None
    rate: Annotated[float, Meta(gt=0)] | None = None


class LabelSettings(SourceSettings, frozen=True, kw_only=True):
    """What all sources with a label have in common, unless they say otherwise themselves."""

    name: str


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data: Annotated[str, _about("folder for everything Skep keeps")] = "./skep-data"
    roles: Annotated[
        tuple[Role, ...], _about("what `skep up` is: coordinator, manager, aggregator, worker, or some of them")
    ] = ROLES
    name: Annotated[str, _about("how people call this member; else by its machine's name")] = ""
    coordinators: Annotated[
        Names, _about("HOST:PORT of each coordinator's link, as workers and managers reach it")
    ] = ()
    token_file: Annotated[
        str,
        _about("file with the token to join with; a coordinator lets in whoever has the same"),
    ] = ""
    link_listen: Annotated[
        str,
        _about(
            "HOST:PORT where a coordinator takes workers and managers of other machines, and an aggregator takes "
            "what workers bring; empty: none"
        ),
    ] = ""
    link_public: Annotated[str, _about("how workers reach that, when not by `link_listen`: HOST:PORT")] = ""
    gather_labels: Annotated[
        Names, _about("an aggregator gathers only sources that have one of these labels; none: all")
    ] = ()
    tls_cert: Annotated[str, _about("certificate of the link, PEM; else DATA/tls/link.crt of `skep ca init`")] = ""
    tls_key: Annotated[str, _about("its key, PEM; else DATA/tls/link.key")] = ""
    tls_ca: Annotated[str, _about("CA that signed it, PEM; else DATA/tls/ca.crt, or what the member joined with")] = ""

    listen: Annotated[str, _about("HOST:PORT for pages, API and git")] = "127.0.0.1:7337"
    public_url: Annotated[str, _about("how others reach this server, when not by `listen`")] = ""
    allow_hosts: Annotated[Names, _about("further names a request's Host or Origin may carry")] = ()
    trusted_proxies: Annotated[
        Names, _about("addresses or networks of proxies that say who showed a client certificate to them")
    ] = ()
    client_subject_header: Annotated[
        str, _about("the header in which they say it, for calls of DataONE; they must remove it from requests")
    ] = "x-client-subject"

    database: Annotated[str, _about("sqlite: (DATA/skep.db), sqlite:PATH, postgresql://…, memory:")] = "sqlite:"
    log: Annotated[str, _about("where topics live; db: keeps them in the database")] = "db:"
    index: Annotated[str, _about("where the search index lives; file: (DATA/index), file:PATH, opensearch://…")] = (
        "file:"
    )
    records: Annotated[
        str, _about("where reports and records are searched; file: (DATA/records), file:PATH, opensearch://…")
    ] = "file:"
    blobs: Annotated[
        str, _about("where packages and outputs live; file: is DATA/blobs, s3://BUCKET/PREFIX, memory:")
    ] = "file:"
    durability: Annotated[
        Literal["full", "delayed"],
        _about("delayed: runtime state (poll times, heartbeats) may lose its last second when the machine dies"),
    ] = "full"

    open_read: Annotated[bool | None, _about("reading needs no token; unset: only while listening on loopback")] = None
    allow_local: Annotated[
        bool | None, _about("admins may add paths and file:// URLs; unset: only while listening on loopback")
    ] = None
    allow_schemes: Annotated[Names, _about("URL schemes that may be mirrored")] = ("https", "http", "ssh", "git")
    allow_networks: Annotated[
        Names, _about("private address ranges that may be asked, such as 127.0.0.0/8 or 192.168.1.0/24")
    ] = ()

    poll_min: Annotated[Seconds, _positive("shortest time between two looks at one source")] = 60.0
    poll_max: Annotated[Seconds, _positive("longest time between two looks at one source")] = 86_400.0
    poll_rule: Annotated[
        PollRule, _about("how often which source is looked at: by its rate of change, its age, or the age's cube root")
    ] = "share"
    poll_budget: Annotated[float, _natural("looks per second of this worker, shared by the rule; 0: no budget")] = 0.0
    poll_concurrency: Annotated[int, _positive("looks at the same time")] = 64
    host_concurrency: Annotated[int, _positive("looks and fetches at the same time at one upstream host")] = 8
    host_rate: Annotated[float, _positive("requests per second to one upstream host")] = 50.0
    host: Annotated[
        tuple[HostLimit, ...], _about("limits by host: [[host]] with name and concurrency, rate (per second)")
    ] = ()
    look_timeout: Annotated[Seconds, _positive("longest time for one look")] = 30.0
    fetch_concurrency: Annotated[int, _positive("fetches at the same time")] = 4
    fetch_timeout: Annotated[Seconds, _positive("longest time for one fetch")] = 7_200.0
    max_repository: Annotated[int, _positive("bytes one fetched pack may have")] = 20_000_000_000
    max_mirrors: Annotated[int, _natural("bytes all mirrors of this worker may have together; 0: no limit")] = 0
    disk_reserve: Annotated[
        int, _natural("bytes that stay free on a worker's disk; with less it gives its sources to others")
    ] = 100_000_000
    huge_over: Annotated[
        int, _positive("a first fetch of more bytes brings the newest commit first, and the history in its own lane")
    ] = 1_000_000_000
    force_push: Annotated[
        Literal["follow", "keep", "ask"],
        _about("history that upstream rewrites: follow it, follow and keep the old tips, or ask a person first"),
    ] = "keep"
    label: Annotated[
        tuple[LabelSettings, ...],
        _about("[[label]] tables: name, and force_push, refs, branches, poll_min, poll_max or priority of its sources"),
    ] = ()
    keep_tips: Annotated[Seconds, _positive("old tips of rewritten or deleted branches are kept for so long")] = (
        31_536_000.0
    )
    fsck_every: Annotated[Seconds, _positive("each mirror is read whole and, if damaged, made anew so often")] = (
        604_800.0
    )

    dataone_node: Annotated[str, _about("what this Skep is called among DataONE's nodes")] = "urn:node:cnSkep"
    dataone_data: Annotated[int, _natural("bytes that an object of data has at most to be kept; 0: none is")] = 0
    dataone_formats: Annotated[
        str,
        _about("a Coordinating Node whose list of object formats is taken over daily; else the shipped one"),
    ] = ""
    dataone_siblings: Annotated[
        Names, _about("base URLs of other Coordinating Nodes whose word on any object counts as ours")
    ] = ()
    dataone_copies_for: Annotated[
        str,
        _about("base URL of the Coordinating Node that may have us hold copies (see docs/dataone.md); else nobody may"),
    ] = ""
    dataone_copies_node: Annotated[str, _about("what this Skep is called as a holder of copies")] = "urn:node:mnSkep"
    dataone_copies_bytes: Annotated[int, _positive("bytes of all copies together")] = 10_000_000_000
    dataone_queue: Annotated[
        tuple[int, int], _about("objects of one node that wait: listing goes on below the first, pauses at the second")
    ] = (1_000, 4_000)
    dataone_full_every: Annotated[Seconds, _positive("everything that a node has is compared so often")] = 604_800.0
    dataone_index_after: Annotated[int, _positive("so many waiting objects of DataONE are indexed at once")] = 100
    dataone_index_within: Annotated[Seconds, _positive("fewer of them when the oldest has waited for so long")] = 5.0

    clone_concurrency: Annotated[int, _positive("clones and fetches served at the same time; others wait")] = 16
    clone_timeout: Annotated[Seconds, _positive("longest time for serving one clone")] = 3_600.0

    lists: Annotated[
        Names, _about("lists of sources to follow: URLs of git repositories, github:ORG, gitlab:GROUP, …")
    ] = ()
    list_every: Annotated[Seconds, _positive("time between two looks at an organisation of a forge")] = 3_600.0
    manifest_every: Annotated[Seconds, _positive("time between two looks at a manifest")] = 60.0

    index_processes: Annotated[int, _natural("processes that build index shards; 0: one per core")] = 0
    index_batch: Annotated[int, _positive("bytes of content one task of a large index takes")] = 64_000_000
    index_max_file: Annotated[int, _positive("larger files are found by name only")] = 2_000_000
    index_branches: Annotated[
        Names, _about("patterns of branches and tags that are searchable besides the default branch, such as release/*")
    ] = ()
    index_ignore: Annotated[
        Names,
        _about("patterns of paths no index holds, as in a .gitignore; `.skepignore` in a repository adds to them"),
    ] = ()
    index_analyse: Annotated[bool, _about("definitions, functions, languages and licences are found out")] = True
    index_generated: Annotated[bool, _about("generated files are found by their content too, not only by name")] = True
    reindex_every: Annotated[Seconds, _positive("each index is compared with its mirror and repaired so often")] = (
        86_400.0
    )
    search_seconds: Annotated[Seconds, _positive("longest time for one search; then what was found is given")] = 10.0

    message_limit: Annotated[int, _positive("bytes one message of a topic may have")] = 1_000_000
    member_seconds: Annotated[Seconds, _positive("a member of a group that is silent for so long is out")] = 30.0
    open_topics: Annotated[
        bool, _about("the routes /topics, /producer, /consumer and /size need no token, for old scripts")
    ] = False

    task_lease: Annotated[Seconds, _positive("a worker silent for so long loses its tasks to others")] = 30.0
    keep_contexts: Annotated[Seconds, _positive("contexts that have finished are removed after so long")] = 604_800.0
    keep_failed: Annotated[Seconds, _positive("contexts that have failed are removed after so long")] = 345_600.0
    result_kinds: Annotated[Names, _about("kinds of results besides measure and failure")] = ()
    labels: Annotated[Names, _about("names that tasks choose this worker by")] = ()
    capacity: Annotated[float, _positive("how many sources this worker takes in comparison with others")] = 1.0
    mirror: Annotated[bool, _about("this worker mirrors sources")] = True
    run_tasks: Annotated[bool, _about("this worker runs tasks")] = True
    task_slots: Annotated[int, _natural("tasks at the same time; 0: one per core, and at least 2")] = 0
    task_memory_threshold: Annotated[
        float, _positive("percent of the memory in use above which a worker takes no further task")
    ] = 90.0
    task_history: Annotated[int, _natural("folders of failed tasks that are kept, the newest")] = 20
    task_commands: Annotated[
        Names, _about("commands, by name or path, that tasks may run on this worker; * means any")
    ] = ()
    task_packages: Annotated[
        Names, _about("packages, as GROUP/NAME, whose commands tasks may run on this worker; * means any")
    ] = ()
    task_variables: Annotated[
        Names,
        _about(
            "variables that tasks may set, patterns such as TASK_*; COMMAND:NAME or GROUP/NAME:NAME: only for this "
            "command or package"
        ),
    ] = ("SKEP_*", "TASK_*")
    task_isolation: Annotated[
        Literal["auto", "namespaces", "bubblewrap", "none"],
        _about("how tasks are kept apart from the worker; none: not at all, they read its tokens"),
    ] = "auto"
    task_user: Annotated[
        str, _about("user that tasks run as when the worker is started as root; empty: the worker's own")
    ] = ""
    task_network: Annotated[bool, _about("tasks that ask for it (network = true) reach the network")] = False
    task_paths: Annotated[Names, _about("further folders and files that tasks may read")] = ()
    task_writable_paths: Annotated[Names, _about("further folders that tasks may write to, such as caches")] = ()
    task_max_seconds: Annotated[Seconds, _positive("longest time of a task, and the limit of one that names none")] = (
        604_800.0
    )
    task_max_cpu: Annotated[Seconds, _positive("processor time of a task, as above")] = 2_592_000.0
    task_max_memory: Annotated[
        int, _natural("bytes of memory of a task, as above; 0: three quarters of the machine's")
    ] = 0
    task_max_disk: Annotated[
        int, _natural("bytes of a task's folder, as above; 0: half of what is free when it starts")
    ] = 0
    task_max_processes: Annotated[int, _positive("processes of a task at once, as above")] = 2048
    task_tools: Annotated[Names, _about("programs to look for, so that tasks can choose a worker that has them")] = (
        *("git", "python3", "make", "cc"),
    )
    package_limit: Annotated[int, _positive("bytes the archive of one package may have")] = 256_000_000
    package_unpacked: Annotated[int, _positive("bytes it may unfold to")] = 2_000_000_000
    package_cache: Annotated[int, _positive("bytes of archives that a worker keeps for the next task")] = 4_000_000_000
    sample_every: Annotated[Seconds, _positive("time between two looks at the load of a worker's machine")] = 5.0

    beat_every: Annotated[Seconds, _positive("time between heartbeats of a worker")] = 5.0
    grace: Annotated[Seconds, _positive("a silent worker keeps what it holds for so long")] = 600.0
    workers_expected: Annotated[
        int, _positive("workers that the first start waits for before it gives out sources")
    ] = 1
    replicas: Annotated[int, _positive("workers that have a mirror of each source, its holder among them")] = 1
    first_wait: Annotated[Seconds, _positive("the first start waits no longer than this for its workers")] = 600.0
    log_lines: Annotated[int, _positive("log lines of all processes together that are kept")] = 20_000
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _about("how much is logged")] = "info"

    @property
    def address(self) -> tuple[str, int]:
        return split_address(self.listen)

    @property
    def loopback(self) -> bool:
        """Only this machine can reach the server, so its users are trusted a little more."""
        return is_loopback(self.address[0])


def is_loopback(host: str) -> bool:
    """`127.example.org` is a name like any other, and may lead anywhere."""
    from ipaddress import ip_address

    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def split_address(listen: str) -> tuple[str, int]:
    """`127.0.0.1:7337` and `[::1]:7337`; port 0 lets the system choose. ValueError says what is wrong."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host:
        raise ValueError(f"'{listen}' is not HOST:PORT")
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise ValueError(f"'{port}' is not a port between 0 and 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"'{listen}': an IPv6 address is written [ADDRESS]:PORT")
    return host, int(port)
