"""`ringup headers`: download header packages, generate facts from them, check the committed facts against them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import ringup.autogen
from ringup.autogen.generate import run as generator
from ringup.autogen.generate.emit import output
from ringup.autogen.generate.manifest import MANIFEST
from ringup.autogen.generate.sources import Sources
from ringup.errors import HeaderError
from ringup.tools.common.json_text import json_text
from ringup.tools.common.paths import add_source_arguments, sources_of
from ringup.tools.common.progress import Progress
from ringup.tools.host.fetch import fetch

FACTS = Path(ringup.autogen.__file__).parent


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "headers",
        help="header packages: download them, generate facts, check the committed facts",
        description="Facts about hardware are generated from public headers. Of these actions only "
        "`fetch` uses the network.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check", help="show which header packages are installed and whether the committed facts match them"
    )
    check.add_argument("--json", action="store_true", help="print one object")
    fetching = actions.add_parser(
        "fetch", help="download header packages from the distribution's mirror into the cache folder"
    )
    fetching.add_argument("package", nargs="*", help="names from the manifest (default: all that the mirror has)")
    generating = actions.add_parser("generate", help="write the facts again from the header packages")
    generating.add_argument(
        "--only", action="append", default=[], metavar="GLOB", help="modules or sets, such as amd/mqd or 'nvidia*'"
    )
    generating.add_argument(
        "--output", type=Path, default=FACTS, metavar="DIR", help="write below DIR instead of the package itself"
    )
    for action in (check, fetching, generating):
        add_source_arguments(action)


def run(args: argparse.Namespace) -> int:
    sources = sources_of(args)
    return {"check": _check, "fetch": _fetch, "generate": _generate}[args.action](args, sources)


def _fetch(args: argparse.Namespace, sources: Sources) -> int:
    packages = sources.manifest.packages
    names = args.package or [label for label, package in packages.items() if package.kind != "tree"]
    for name in names:
        # an unknown package is an error before anything is downloaded
        sources.find(name)
    with Progress("fetching", len(names)) as progress:
        for name in names:
            fetch(packages[name], sources.cache, progress.say)
            progress.advance()
    return 0


def _generate(args: argparse.Namespace, sources: Sources) -> int:
    if args.manifest != MANIFEST and args.output == FACTS:
        raise HeaderError("facts of another manifest are not part of ringup: name their folder with --output DIR")
    total = len(sources.manifest.modules) + len(sources.manifest.sets)
    with Progress("generating", total) as progress:
        made = generator.generate(sources, args.only, progress.step)
    # only a complete run has the table of all refusals
    whole = output.REJECTED in made.files
    changed = output.write(made.files, args.output, whole)
    refused = sum(map(len, made.rejected.values()))
    print(
        f"{len(made.files)} files in {sum(made.cpu_s.values()):.1f} s, {len(changed)} changed, {refused} names "
        f"refused ({output.REJECTED})"
    )
    for path in changed:
        print(f"  {path}" if path in made.files else f"  {path} (removed: no longer in the manifest)")
    return 0


def _check(args: argparse.Namespace, sources: Sources) -> int:
    """Generate into memory from the installed packages and compare. Status 1 if a fact differs or nothing could be
    compared.
    """
    with Progress("checking", len(sources.manifest.modules) + len(sources.manifest.sets)) as progress:
        made = generator.generate(sources, (), progress.step, strict=False)
    differing = sorted(path for path, content in made.files.items() if not output.same(FACTS / path, content))
    left = [] if made.left_out or args.manifest != MANIFEST else output.leftovers(FACTS, made.files)
    status = 1 if differing or left or not made.files else 0
    packages = {
        label: {
            "there": sources.find(label) is not None,
            "version": sources.version(label),
            "facts_read_from": package.read,
            "kind": package.kind,
        }
        for label, package in sources.manifest.packages.items()
    }
    if args.json:
        print(
            json_text(
                {
                    "packages": packages,
                    "checked": len(made.files),
                    "differ": differing,
                    "left_over": left,
                    "not_checked": made.left_out,
                },
                indent=1,
            )
        )
        return status
    for label, row in packages.items():
        state = "missing" if not row["there"] else f"{row['version'] or 'a tree given by path'}"
        print(f"{label:14} {state:24} facts were read from {row['facts_read_from']}")
    for name, label in made.left_out.items():
        print(f"not checked: {name} (needs {label})")
    for path in differing:
        print(f"differs: {path}", file=sys.stderr)
    for path in left:
        print(f"left over: {path}", file=sys.stderr)
    if not made.files:
        print("nothing could be compared: no header package is installed; `ringup headers fetch` downloads them")
        return status
    verdict = "all equal"
    if differing or left:
        verdict = f"{len(differing)} differ, {len(left)} are left over: run `ringup headers generate`"
    print(f"{len(made.files)} fact files compared with the headers: {verdict}")
    return status
