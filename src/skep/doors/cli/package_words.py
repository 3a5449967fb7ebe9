"""The words of `skep package`."""

from skep.doors.cli.parser import Command, json_option


def fill(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("build", help="make an archive of a folder", fill=_fill_build, run="package:build")
    verbs.add_parser("push", help="store a package, for all workers", fill=_fill_push, run="package:push")
    verbs.add_parser("list", help="packages by name", fill=_fill_list, run="package:listing")
    verbs.add_parser("show", help="one package: commands, templates", fill=_fill_show, run="package:show")
    verbs.add_parser("download", help="its archive", fill=_fill_download, run="package:download")
    verbs.add_parser("remove", help="forget a package", fill=_package, run="package:remove")
    verbs.add_parser("run", help="submit one of its templates", fill=_fill_run, run="package:run")


def _package(parser: Command) -> None:
    parser.add_argument("package", metavar="PACKAGE", help="GROUP/NAME/VERSION")


def _fill_build(parser: Command) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="with skep-package.toml in it")
    parser.add_argument("--output", metavar="FILE", default="", help="NAME-VERSION.tar.gz, if not given")
    json_option(parser)


def _fill_push(parser: Command) -> None:
    parser.add_argument("path", metavar="PATH", help="a zip, tar or tar.gz; or a folder, which is built first")
    json_option(parser)


def _fill_list(parser: Command) -> None:
    parser.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="a GROUP, or GROUP/NAME/")
    json_option(parser)


def _fill_show(parser: Command) -> None:
    _package(parser)
    json_option(parser)


def _fill_download(parser: Command) -> None:
    _package(parser)
    parser.add_argument("file", metavar="FILE", help="where to; it is overwritten")


def _fill_run(parser: Command) -> None:
    _package(parser)
    parser.add_argument("template", metavar="TEMPLATE", help="of a task or context, as `skep package show` lists them")
    parser.add_argument("--property", metavar="NAME=VALUE", action="append", default=[], help="may be repeated")
    parser.add_argument("--wait", action="store_true", help="return when it has ended; exit code 1 if it failed")
    json_option(parser)
