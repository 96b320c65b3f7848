"""The checks find what they look for."""

import links
import names
import promises
import style
import transcripts
from pages import Page, anchor


def book_of(**texts):
    return {name: Page(name, text) for name, text in texts.items()}


def run():
    assert anchor("`--ft node`, again & more") == "--ft-node-again--more"
    one = Page("docs/a.md", "# A\n\n[x](b.md) `[y](c.md)` [z](#a)\n\n```sh\n[w](d.md)\n```\n")
    assert [t for _, t in links.targets(one)] == ["b.md", "#a"]
    over = Page("docs/b.md", "see [x\ny](b.md), `[z]\n(c.md)`\n\n` [w](d.md)\n")
    assert list(links.targets(over)) == [(1, "b.md"), (5, "d.md")]
    book = {"docs/a.md": one}
    assert links.broken(book, "docs/a.md", "#a") is None
    assert links.broken(book, "docs/a.md", "#b") == "there is no such heading"
    assert links.broken(book, "docs/a.md", "nowhere.md") == "there is no such file"
    assert links.broken(book, "docs/a.md", "../README.md") == "leads out of the book"
    summary = {"docs/SUMMARY.md": Page("docs/SUMMARY.md", "- [b](b.md)\n"), "docs/a.md": one}
    assert [p for p, _ in links.unreachable(summary)] == ["docs/a.md"]
    long = Page("docs/guides/a.md", "word " * 601 + "\n\n| " + "x" * 130 + " |\n")
    found = {"docs/guides/a.md": long}
    assert len(list(style.long_lines(found))) == 1 and len(list(style.long_guides(found))) == 1
    broken = {"a": Page("a", "```sh\nif true; then\n```\n\n```console\n$ ls\nif it is\n```\n")}
    assert len(list(transcripts.unparsable(broken))) == 1
    named = Page("docs/internals/a.md", "`Go (0)`, `Wrong {x}`, `vault::cost`, `vault::worth`, `x Y`\n")
    told = names.unknown(named, {"Go"}, {"vault": {"cost"}})
    assert list(told) == [(1, "Wrong"), (1, "vault::worth")]
    assert promises.spread("a.{b,c}_*") == ["a.b_*", "a.c_*"]
    files = [({"src", "tests", "door"}, ["what_is_told", "it"])]
    assert promises.in_crate(files, ["door", "tests"], "what_*") and not promises.in_crate(files, ["gate"], "it")
    assert promises.in_cases({"m": "def test_a_b():"}, "m", "a_*") and not promises.in_cases({}, "m", "a")
    known = {"eyrie run": {"-n": True, "--tls": False}, "eyrie status": {}}
    wrong = transcripts.wrong
    assert wrong(known, "eyrie run -n 4 --tls -- ./a --x".split()) is None
    assert wrong(known, "eyrie run -n 4 ./a --x".split()) is None
    assert "--nope" in wrong(known, "eyrie run --nope ./a".split())
    assert "eyrie stats" in wrong(known, "eyrie stats last".split())
    assert list(transcripts.commands("A=1 eyrie run -n 2 \\\n  ./a\n")) == [
        ["eyrie", "run", "-n", "2", "./a"]
    ]
    assert not list(transcripts.commands("make install PREFIX=/a/bin/eyrie\nFROM eyrie\n"))
    assert list(transcripts.commands("sudo eyrie ps; ls\n")) == [["eyrie", "ps", "ls"]]
    text = "## eyrie run\n\n- `-n N`, `--np N`: Ranks.\n- `--tls[=IT]`: TLS.\n"
    path = "docs/reference/options.md"
    told = transcripts.options({path: Page(path, text)})
    assert told == {"eyrie run": {"-n": True, "--np": True, "--tls": False}}
