"""The core: the rooms of one process behind one name. Doors call `core.<noun>.<verb>(caller, …)` and nothing else."""

import msgspec

from skep.access.audit import Audit
from skep.access.tokens import Access
from skep.analysis.service import SourceReports
from skep.benchmarks.evaluations import Evaluations
from skep.benchmarks.service import Benchmarks
from skep.dataone.service import DataOne
from skep.fleet.members import Fleet
from skep.mirrors.access import Gather
from skep.packages.service import Packages
from skep.results.service import Results
from skep.rules.service import Rules
from skep.search.saved import Saved
from skep.search.service import Search
from skep.sources.credentials import Credentials
from skep.sources.lists.service import Lists
from skep.sources.service import Bulk, Sources
from skep.sources.webhooks import Hooks
from skep.spaces.processes import Journal
from skep.spaces.service import Spaces
from skep.status.service import StatusView
from skep.tasks.contexts import Contexts
from skep.tasks.service import Tasks, Workers
from skep.topics.groups import Groups
from skep.topics.legacy_queue import Queue
from skep.topics.service import Topics


class Core(msgspec.Struct, frozen=True):
    access: Access
    audit: Audit
    sources: Sources
    lists: Lists
    bulk: Bulk
    credentials: Credentials
    hooks: Hooks
    topics: Topics
    groups: Groups
    queue: Queue
    search: Search
    reports: SourceReports
    searches: Saved
    gather: Gather
    spaces: Spaces
    contexts: Contexts
    tasks: Tasks
    results: Results
    packages: Packages
    workers: Workers
    fleet: Fleet
    rules: Rules
    benchmarks: Benchmarks
    evaluations: Evaluations
    log: Journal
    status: StatusView
    dataone: DataOne
