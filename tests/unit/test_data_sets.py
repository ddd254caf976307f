"""The mappings of docs/data-sets.md, on files with the headers and the kinds of values of each data set."""

import gzip
import re
import tomllib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment.parsing import parse_tables
from livegnn.events.chunk import Chunk
from livegnn.tables import TableMapping, list_files, read_file

PAGE = (Path(__file__).parents[2] / "docs" / "data-sets.md").read_text(encoding="utf-8")
MAPPINGS: dict[str, TableMapping] = {}
for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL):
    MAPPINGS |= parse_tables(tomllib.loads(block)["tables"], Path())
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

SNAP = """# Directed graph (each unordered pair of nodes is saved once): soc-Epinions1.txt
# Directed Epinions social network
# Nodes: 75879 Edges: 508837
# FromNodeId\tToNodeId
0\t4
0\t5
7\t4
"""
OTC = "6,2,4,1289241911.72836\n6,5,2,1289241941.53378\n"
AML = """Timestamp,From Bank,Account,To Bank,Account,Amount Received,Receiving Currency,Amount Paid,Payment \
Currency,Payment Format,Is Laundering
2022/09/01 00:20,010,8000EBD30,010,8000EBD30,3697.34,US Dollar,3697.34,US Dollar,Reinvestment,0
2022/09/01 00:06,03208,8000F5340,001,8000F5340,0.01,Yen,0.01,Yen,Cheque,0
2022/09/30 23:59,03209,8000F5340,0012,80010CF20,14675.57,US Dollar,14675.57,US Dollar,Cheque,1
"""
PAYSIM = """step,type,amount,nameOrig,oldbalanceOrg,newbalanceOrig,nameDest,oldbalanceDest,newbalanceDest,\
isFraud,isFlaggedFraud
1,PAYMENT,9839.64,C1231006815,170136.0,160296.36,M1979787155,0.0,0.0,0,0
743,CASH_OUT,6311409.28,C1162922333,6311409.28,0.0,C1365125890,68488.84,6379898.11,1,0
"""
LDBC = """Person.id|Person.id|creationDate
933|2199023256077|2010-03-13T07:37:21.718+0000
933|4398046511333|2010-09-12T16:10:06.000+0000
"""


def file(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    data = content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize(
    ("name", "table", "content", "edges", "text_ids", "expected"),
    [
        ("soc-Epinions1.txt.gz", "trusts", SNAP, lg.EdgeSchema(), False, [(0, 4), (0, 5), (7, 4)]),
        (
            "soc-sign-bitcoinotc.csv.gz",
            "ratings",
            OTC,
            lg.EdgeSchema(weighted=True, timed=True),
            False,
            [(6, 2, 4, 1289241911.72836), (6, 5, 2, 1289241941.53378)],
        ),
        (
            "HI-Small_Trans.csv",
            "transfers",
            AML,
            lg.EdgeSchema(timed=True, edge_dim=2),
            True,
            [
                ("8000EBD30", "8000EBD30", 1661991600, 3697.34, 3697.34),
                ("8000F5340", "80010CF20", 1664582340, 14675.57, 14675.57),
            ],
        ),
        (
            "PS_log.csv",
            "payments",
            PAYSIM,
            lg.EdgeSchema(weighted=True, timed=True, edge_dim=2),
            True,
            [("C1162922333", "C1365125890", 6311409.28, 743 * 3600, 6311409.28, 0)],
        ),
        (
            "person_knows_person_0_0.csv",
            "knows",
            LDBC,
            lg.EdgeSchema(timed=True),
            False,
            [(933, 2199023256077, 1268465841.718), (933, 4398046511333, 1284307806)],
        ),
    ],
    ids=["snap", "bitcoin", "aml", "paysim", "ldbc"],
)
def test_files_of_data_sets_are_read(
    name: str,
    table: str,
    content: str,
    edges: lg.EdgeSchema,
    text_ids: bool,
    expected: list[tuple[object, ...]],
    tmp_path: Path,
) -> None:
    path = file(tmp_path, name, content)
    schema = lg.Schema({"node": 0}, {("node", "to", "node"): edges}, text_ids=text_ids)
    ((_, events),) = read_file(list_files([path])[0], MAPPINGS[table], schema)
    (chunk,) = events.chunks
    assert rows_of(chunk) == [tuple(map(rounded, row)) for row in expected]


def rounded(value: object) -> object:
    return np.float32(value) if isinstance(value, float) and value < 1e9 else value


def rows_of(chunk: Chunk) -> list[tuple[object, ...]]:
    """The edges of a chunk: ends, weight, time and features, of these the ones that it has."""
    columns = [list(one) for one in (chunk.ids, chunk.dst, chunk.weight, chunk.time) if one is not None]
    if chunk.x is not None:
        columns += list(chunk.x.T)
    return list(zip(*columns, strict=True))


def test_data_sets_that_a_program_reads(tmp_path: Path) -> None:
    page = vars(ModuleType("page"))
    for snippet in PYTHON:
        exec(snippet, page)
    features = "".join(
        f"{id},{at}," + ",".join(["0.5"] * 165) + "\n" for at, id in enumerate([230425980, 5530458])
    )
    graph = page["elliptic"](
        file(tmp_path, "elliptic_txs_features.csv", features),
        file(tmp_path, "elliptic_txs_edgelist.csv", "txId1,txId2\n230425980,5530458\n"),
    )
    assert (graph.num_nodes(), graph.num_edges()) == (2, 1)
    assert graph.neighbors(5530458).ids.tolist() == [230425980]

    interactions = file(
        tmp_path, "ml_wikipedia.csv", ",u,i,ts,label,idx\n0,1,8228,0.0,0.0,1\n1,2,8229,36.0,0.0,2\n"
    )
    np.save(tmp_path / "ml_wikipedia.npy", np.arange(12.0).reshape(3, 4))
    page["join"](interactions, tmp_path / "ml_wikipedia.npy", tmp_path / "wikipedia.parquet")
    schema = lg.Schema({"page": 0}, {("page", "edits", "page"): lg.EdgeSchema(timed=True, edge_dim=4)})
    ((_, events),) = read_file(tmp_path / "wikipedia.parquet", MAPPINGS["interactions"], schema)
    (chunk,) = events.chunks
    assert rows_of(chunk) == [(1, 8228, 0, 4, 5, 6, 7), (2, 8229, 36, 8, 9, 10, 11)]
