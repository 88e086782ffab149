from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import proof_seals


@pytest.mark.parametrize("proof", proof_seals.proofs(), ids=lambda path: path.name)
def test_every_anchor_a_proof_cites_stands_in_the_code(proof: Path) -> None:
    assert proof_seals.cited(proof) <= proof_seals.anchors().keys()


def test_every_anchor_in_the_code_is_cited_by_a_proof() -> None:
    cited = set().union(*map(proof_seals.cited, proof_seals.proofs()))
    assert proof_seals.anchors().keys() <= cited


@pytest.mark.parametrize("proof", proof_seals.proofs(), ids=lambda path: path.name)
def test_no_proof_is_older_than_its_code(proof: Path) -> None:
    sealed = proof_seals.SEAL.findall(proof.read_text(encoding="utf-8"))
    assert sealed == [proof_seals.seal(proof)], (
        f"code that {proof.name} speaks of has changed: read the proof against it, mend it, "
        "then run python -m tests.support.proof_seals"
    )


def test_the_seal_sees_a_change_of_code_and_not_of_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = tmp_path / "a.proof.md"
    proof.write_text("Sealed: 000000000000\n[A1]\n", encoding="utf-8")
    monkeypatch.setattr(proof_seals, "SOURCE", tmp_path)
    seals = []
    for body in ("return 2 * x", "return 2  *  x", "return 3 * x"):
        code = f'def f(x):\n    "What {body}"\n    # why\n    {body}  # [A1]\n'
        (tmp_path / "a.py").write_text(code, encoding="utf-8")
        seals.append(proof_seals.seal(proof))
    assert seals[0] == seals[1] != seals[2]
