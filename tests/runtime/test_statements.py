"""Files of named statements are read, and refused where they hide something."""

from __future__ import annotations

from pathlib import Path

import pytest

from cronwell.runtime.statements import load_statements


def test_statements_are_read_by_name_without_their_purpose(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sql"
    file.write_text(
        "-- What the store does with jobs.\n\n"
        "-- name: claim\n-- Take what is due.\n-- Twice as fast as it was.\n"
        "select 1 -- not a purpose\nfrom jobs;\n\n"
        "-- name: count_all\n-- Count them.\nselect count(*)\n  from jobs\n"
    )
    assert load_statements(file) == {
        "claim": "/* claim */ select 1 -- not a purpose\nfrom jobs",
        "count_all": "/* count_all */ select count(*)\n  from jobs",
    }


def test_what_statements_share_stands_in_each_of_them(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sql"
    file.write_text(
        "-- part: open\n-- Those that go on.\nstate = 'open'\n    and size > 0\n"
        "-- name: count_open\n-- Count them.\nselect count(*) from jobs where /* part: open */\n"
        "-- name: list_open\n-- List them.\nselect * from jobs where id > $1 and /* part: open */ limit 5\n"
    )
    assert load_statements(file) == {
        "count_open": "/* count_open */ select count(*) from jobs where state = 'open'\n    and size > 0",
        "list_open": "/* list_open */ select * from jobs where id > $1 and state = 'open'\n    and size > 0 limit 5",
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-- name: a\n-- One.\nselect 1\n-- name: a\n-- Two.\nselect 2", "defined twice"),
        ("-- name: a\nselect 1", "purpose"),
        ("-- name: a\n-- One.\n\n", "no SQL"),
        ("-- name: a b\n-- One.\nselect 1", "does not name"),
        ("-- name: Claim\n-- One.\nselect 1", "does not name"),
        ("select 1\n-- name: a\n-- One.\nselect 1", "before the first"),
        ("-- name: a\n-- One.\nselect /* part: b */\n-- part: b\n-- Two.\n1", "no part 'b'"),
    ],
)
def test_a_file_of_statements_that_hides_something_is_refused(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "wrong.sql"
    file.write_text(text)
    with pytest.raises(ValueError, match=complaint):
        load_statements(file)
