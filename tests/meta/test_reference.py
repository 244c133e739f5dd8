"""What the documents say of commands, exit statuses and table features is what the code does."""

import re

from liquidlog import errors
from liquidlog.clustering.settings import SETTINGS, WEIGHTS
from liquidlog.spec import features
from liquidlog.spec.actions import Protocol
from support.commands import commands
from support.repository import ROOT, text

VERBS = text("docs/reference/cli.md")
STATUSES = text("docs/reference/errors.md")
FEATURES = text("docs/reference/tables.md")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES.remove(ROOT / "docs" / "mistakes.md")  # it shows options that do not exist


def _table(page: str, heading: str) -> dict[str, str]:
    """Return {first cell: row} of the table of a page whose heading row begins with `heading`."""
    _, _, rest = page.partition(f"| {heading} |")
    rows = rest.split("\n\n")[0].splitlines()[2:]
    return {row.split("|")[1].strip(): row for row in rows}


def test_every_verb_is_in_the_table_of_verbs() -> None:
    assert {verb.strip("`") for verb in _table(VERBS, "verb")} == set(commands())


def test_every_setting_is_in_the_table_of_settings() -> None:
    rows = _table(text("docs/reference/settings.md"), "setting")
    assert list(rows) == [f"`{one.name}`" for one in SETTINGS if one.name != WEIGHTS]
    for one in SETTINGS:
        if one.name != WEIGHTS:
            assert one.help in rows[f"`{one.name}`"]
            assert all(f"`{name}`" in rows[f"`{one.name}`"] for name in one.properties)


def test_every_verb_that_writes_can_run_dry() -> None:
    writing = {
        verb.strip("`")
        for verb, row in _table(VERBS, "verb").items()
        if row.split("|")[2].strip() != "no"
    }
    dry = {
        name
        for name, command in commands().items()
        if any(parameter.name == "dry_run" for parameter in command.params)
    }
    assert dry == writing


def test_options_that_a_page_names_exist() -> None:
    known = {
        option
        for command in commands().values()
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    session = re.compile(r"^\$ liquidlog.*|`liquidlog [^`]*`|`--[^`]*`", re.MULTILINE)
    unknown = {
        (str(page.relative_to(ROOT)), option)
        for page in PAGES
        for words in session.findall(page.read_text("utf-8"))
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", words)
        if option not in {*known, "--help"}
    }
    assert unknown == set()


def test_exit_statuses_are_all_explained() -> None:
    statuses = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert {int(status) for status in _table(STATUSES, "exit status")} == statuses


def _features(row_start: str) -> list[str]:
    rows = _table(FEATURES, "what a table uses")
    (row,) = (row for first, row in rows.items() if first.startswith(row_start))
    return re.findall(r"`(\w+)`", row.split("|")[2])


READER_FEATURES = {
    "unknownReaderFeature",
    "catalogManaged",
    "columnMapping",
    "deletionVectors",
    "geospatial",
    "timestampNtz",
    "typeWidening",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantShredding",
    "variantType",
}


REQUIRED = {"rowTracking": ("domainMetadata",)}


def _protocol(feature: str) -> Protocol:
    """Return a protocol with one feature and what it needs. Reader features are listed twice."""
    readers = (feature,) if feature in READER_FEATURES else None
    return Protocol(
        min_reader_version=3 if readers else 1,
        min_writer_version=7,
        reader_features=readers,
        writer_features=(feature, *REQUIRED.get(feature, ())),
    )


def test_features_are_what_the_table_of_features_says() -> None:
    said = {
        "inspected, written": _features("supported"),
        "inspected": [*_features("read only"), "unknownWriterFeature"],
        "": [*_features("refused"), "unknownReaderFeature"],
    }
    assert all(said.values())
    for uses, names in said.items():
        assert {name: _uses(name) for name in names} == dict.fromkeys(names, uses)


def _uses(feature: str) -> str:
    """Return what may be done with a table of this feature."""
    protocol = _protocol(feature)
    if features.unsupported_for_inspection(protocol):
        return ""
    is_written = features.unsupported_for_writing(protocol, {}) == ()
    return "inspected, written" if is_written else "inspected"


def test_every_supported_feature_is_named() -> None:
    named = {*_features("supported"), *_features("read only")}
    known = features._WRITE_FEATURES | features._INSPECT_READER_FEATURES
    assert {name for name in known - named if not name.startswith(("typeW", "variant"))} == set()
