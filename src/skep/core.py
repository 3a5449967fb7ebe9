"""The core: the rooms of one process behind one name. Doors call `core.<noun>.<verb>(caller, …)` and nothing else."""

import msgspec

from skep.access.audit import Audit
from skep.access.service import Access
from skep.benchmarks.evaluations import Evaluations
from skep.benchmarks.service import Benchmarks
from skep.dataone.service import DataOne
from skep.fleet.service import Fleet
from skep.gather.service import Gather
from skep.packages.service import Packages
from skep.results.service import Results
from skep.search.reports import SourceReports
from skep.search.saved import Saved
from skep.search.service import Search
from skep.sources.bulk import Bulk
from skep.sources.credentials import Credentials
from skep.sources.hooks import Hooks
from skep.sources.lists.service import Lists
from skep.sources.service import Sources
from skep.spaces.journal import Journal
from skep.spaces.service import Spaces
from skep.status import StatusView
from skep.tasks.contexts import Contexts
from skep.tasks.rules import Rules
from skep.tasks.service import Tasks
from skep.tasks.workers import Workers
from skep.topics.groups import Groups
from skep.topics.queue import Queue
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
