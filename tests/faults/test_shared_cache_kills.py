"""Workers that share a cache are killed at any moment: nobody ever reads a row that is wrong."""

import asyncio
import json
import os
import random
from pathlib import Path

import numpy as np

from gate import draws
from livegnn.functions.settings import MachineSettings
from livegnn.remote.predictor import open_predictor
from livegnn.remote.shared_memory import MemoryFile
from livegnn.snapshots.writer import write_snapshot
from processes import kill, runs
from sharing_workers import Process, Sharer
from streams import make_graph, make_model
from waiting import REQUEST_SECONDS, until

SEED = int(os.environ.get("LIVEGNN_SEED", "0"))
KILLS = int(os.environ.get("LIVEGNN_KILLS", draws(5, 12)))


def test_workers_are_killed_while_they_insert_and_evict() -> None:
    print(f"LIVEGNN_SEED={SEED}")
    choose = random.Random(SEED)
    file = MemoryFile(64 << 20)
    watching = Sharer(file.fd, SEED)
    workers = [Process(file, SEED + number) for number in range(3)]
    for number in range(KILLS):
        for worker in workers:
            worker.begin(10_000)
        for _ in range(choose.randrange(1, 60)):
            watching.step()
        for worker in workers:
            worker.kill()
        file.release_of_ended()
        assert watching.memory.left_by_others == 0
        assert not watching.wrong
        workers = [Process(file, SEED + 100 * number + place) for place in range(3)]
    for worker in workers:
        worker.begin(50)
        found = worker.end()
        assert not found["wrong"]
        assert found["hits"]
        worker.kill()
    assert watching.hits
    file.close()


def test_a_node_whose_workers_are_killed_answers_right(tmp_path: Path) -> None:
    """Each request is asked until it is answered; two workers at once may die with one."""
    print(f"LIVEGNN_SEED={SEED}")
    choose = random.Random(SEED)
    write_snapshot(make_graph(), str(tmp_path / "snapshot"))
    make_model().save(tmp_path / "model")
    alone = open_predictor(str(tmp_path / "snapshot"), tmp_path / "model", cache=False)
    ids = np.arange(40)
    expected = {id_: alone.predict([id_]).tobytes() for id_ in ids.tolist()}

    async def work() -> None:
        node = MachineSettings(str(tmp_path / "snapshot"), str(tmp_path / "model"), workers=3).open()
        done = False

        async def ask() -> int:
            answered = 0
            while not done:
                id_ = choose.randrange(40)
                answer = await node.predict(json.dumps({"ids": [id_], "timeout": REQUEST_SECONDS}).encode())
                if answer.status == 200:
                    rows = np.array(json.loads(answer.body)["predictions"], np.float32)
                    assert rows.tobytes() == expected[id_]
                    answered += 1
                else:
                    assert json.loads(answer.body)["type"] == "/problems/workers-failed"
            return answered

        asking = [asyncio.create_task(ask()) for _ in range(4)]
        stage = node.stages["predict"]

        def kill_one() -> bool:
            """A worker that has started; False if there is none, or the one chosen has just ended itself."""
            workers = list(stage._workers.values())
            return bool(workers) and kill(choose.choice(workers).pid)

        for number in range(KILLS):
            enough = stage.figures.answered + choose.randrange(1, 40)
            await until(lambda enough=enough: stage.figures.answered >= enough)
            await until(kill_one)
            assert not any(task.done() for task in asking), number
        done = True
        assert sum(await asyncio.gather(*asking)) > KILLS
        assert stage.figures.died > 0
        pids = [worker.pid for worker in stage._workers.values()]
        await node.close(1)
        assert not any(runs(pid) for pid in pids)

    asyncio.run(work())
