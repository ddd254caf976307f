"""The Open Inference Protocol as Triton's own client speaks it, with a server in a process of its own."""

from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

import loopback
from livegnn.http.keys import create_key
from serving import Server, write_deployment
from waiting import REQUEST_SECONDS


@pytest.mark.parametrize("binary", [False, True])
def test_tritons_client_reads_predictions(tmp_path: Path, binary: bool) -> None:
    with Server(write_deployment(tmp_path)) as server, loopback.Client(base_url=server.address) as client:
        other = triton.InferenceServerClient(server.address.removeprefix("http://"))
        assert other.is_server_live()
        assert other.is_server_ready()
        assert other.is_model_ready("engine")
        (output,) = other.get_model_metadata("engine")["outputs"]
        seq = client.post("/v1/events", json={"events": [{"event": "add_edge", "src": 1, "dst": 2}]}).json()[
            "seq"
        ]
        asked = {"ids": "1,2,3", "min_seq": seq, "timeout": REQUEST_SECONDS}
        expected = client.get("/v1/predictions", params=asked).json()
        ids = triton.InferInput("ids", [3], "INT64")
        ids.set_data_from_numpy(np.array([1, 2, 3]), binary_data=binary)
        for outputs in ([triton.InferRequestedOutput(output["name"], binary_data=binary)], None):
            answer = other.infer(
                "engine", [ids], outputs=outputs, request_id="7", parameters={"min_seq": seq}
            )
            assert answer.get_response()["id"] == "7"
            assert answer.get_response()["parameters"]["seq"] == expected["seq"]
            np.testing.assert_array_equal(
                answer.as_numpy(output["name"]), np.float32(expected["predictions"])
            )
        with pytest.raises(InferenceServerException, match="there is no model 'other': there are engine"):
            other.infer("other", [ids])
        other.close()
        assert server.stop() == 0


def test_tritons_client_sends_a_key(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path)
    deployment.write_text(deployment.read_text(encoding="utf-8") + 'keys = "keys.json"\n', encoding="utf-8")
    headers = {"authorization": f"Bearer {create_key(tmp_path / 'keys.json', 'triton', ['read'])}"}
    with Server(deployment) as server:
        client = triton.InferenceServerClient(server.address.removeprefix("http://"))
        assert client.is_server_ready()
        assert client.is_model_ready("engine", headers=headers)
        assert not client.is_model_ready("engine")
        client.close()
        assert server.stop() == 0
