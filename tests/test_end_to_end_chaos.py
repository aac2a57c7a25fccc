"""The short form of the chaos harness: every kind of fault once. `make chaos` runs the long one."""

from collections import Counter
from pathlib import Path

from chaos import Chaos
from chaos_faults import FAULTS
from kafka_broker import KafkaBroker


def test_whatever_strikes_every_table_equals_the_log(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "kafka") as kafka:  # its own: it is killed
        chaos = Chaos(kafka, tmp_path, seed=4, lock_seconds=3, most_a_second=400)
        chaos.gap = 1.0
        kinds = list(FAULTS)
        chaos.chance.shuffle(kinds)
        with chaos.stage() as (stage, expectation):
            chaos.round(stage, expectation, kinds[:7])
            chaos.round(stage, expectation, kinds[7:])
            if missed := FAULTS.keys() - chaos.result.faults:  # there was nothing that they could strike
                chaos.round(stage, expectation, sorted(missed))
    assert chaos.result.faults == Counter(kinds)
    assert all(chaos.result.compared[table] for table in ("invocations", "origin_hits", "entry_blocks", "url_blocks"))
