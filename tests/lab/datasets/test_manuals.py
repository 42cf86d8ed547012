"""Sentences of the two manuals: every row belongs to one library and one topic, and none repeats."""

from pro2.lab.datasets.manuals import TOPICS, make_manual_sentences


def test_sentences_are_distinct_whole_and_of_both_libraries():
    rows = make_manual_sentences(30)
    assert len(set(rows["text"])) == len(rows["text"]) == len(rows["topic"]) == len(rows["library"])
    for library in ("numpy", "scipy"):
        for topic in TOPICS:
            assert ((rows["library"] == library) & (rows["topic"] == topic)).sum() == 30
    assert all(text.endswith(".") and 50 < len(text) < 250 for text in rows["text"])


def test_equal_seeds_give_equal_rows_and_others_do_not():
    first, again, other = make_manual_sentences(20), make_manual_sentences(20), make_manual_sentences(20, seed=1)
    assert first["text"].tolist() == again["text"].tolist()
    assert first["text"].tolist() != other["text"].tolist()
