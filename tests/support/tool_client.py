# SPDX-License-Identifier: Apache-2.0
"""A client that brings tools: it sends code, and answers the calls that the code makes."""



class ToolClient:
    """`tools` are functions by name; their descriptions say what a model would see."""

    def __init__(self, gateway, session, tools, descriptions=None):
        self.gateway = gateway
        self.session = session
        self.tools = tools
        self.descriptions = descriptions or [{"name": name} for name in tools]
        self.calls = []

    def stream(self, code, **fields):
        """A reader of the lines; nothing answers the calls."""
        return self.gateway.stream(
            code, session_id=self.session, tools=self.descriptions, **fields
        )

    def answer(self, execution, *results, status=200, **more):
        """Gives results: pairs of a call's id and {"result" or "error"}."""
        body = {"results": [{"call_id": call, **result} for call, result in results], **more}
        answer = self.gateway.client.post(f"/api/v1/executions/{execution}/tool_results", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def result_of(self, call):
        try:
            return {"result": self.tools[call["name"]](**call["arguments"])}
        except Exception as error:  # noqa: BLE001 - as the tool says it
            return {"error": f"{type(error).__name__}: {error}"}

    def run(self, code, **fields):
        """Runs code as an agent's host would, call by call; returns all lines."""
        with self.stream(code, **fields) as reader:
            execution = reader.response.headers["x-execution-id"]
            while True:
                line = reader.next()
                if line["type"] == "tool_call":
                    self.calls.append(line)
                    self.answer(execution, (line["call_id"], self.result_of(line)))
                if line["type"] == "done":
                    return reader.lines

    def run_sync(self, code, **fields):
        """The same by execute_sync; returns the list of answers."""
        body = {"code": code, "session_id": self.session, "tools": self.descriptions, **fields}
        answer = self.gateway.client.post("/api/v1/execute_sync", json=body)
        answers = []
        while True:
            assert answer.status_code == 200, answer.text
            answers.append(answer.json()["data"])
            if answers[-1]["status"] != "tool_calls":
                return answers
            calls = answers[-1]["tool_calls"]
            self.calls += calls
            results = [{"call_id": call["call_id"], **self.result_of(call)} for call in calls]
            answer = self.gateway.client.post(
                f"/api/v1/executions/{answers[-1]['execution_id']}/tool_results",
                json={"results": results, "wait": True},
            )


def errors_of(lines):
    return [line["error"] for line in lines if line["type"] == "error"]
