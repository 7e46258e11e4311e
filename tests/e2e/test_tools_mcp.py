# SPDX-License-Identifier: Apache-2.0
"""A program that runs code over MCP, and answers the tools that the code calls, with official clients."""

import json

import pytest
from mcp_clients import WireClient, client_of

CLIENTS = [("2-auto", "http"), ("python-auto", "http"), ("python-legacy", "stdio")]
ORDERS = {
    "name": "orders",
    "description": "The orders of a customer",
    "input_schema": {
        "type": "object",
        "properties": {"customer": {"type": "string"}},
        "required": ["customer"],
    },
}
CODE = """
import tools, pandas as pd
print("looking")
table = pd.DataFrame(row for name in ("Ada", "Bob") for row in tools.orders(customer=name))
print(table.groupby("customer").amount.sum().to_dict())
"""


def orders(customer):
    return [{"customer": customer, "amount": amount} for amount in (1, len(customer))]


def play(client, code, tools, functions, **arguments):
    """What an agent's host does, without its model; returns the results of all calls."""
    results = [client.call("run_python_code", {"code": code, "tools": tools, **arguments})]
    while results[-1].structured["status"] == "tool_calls":
        waiting = results[-1].structured
        answers = []
        for call in waiting["tool_calls"]:
            try:
                answer = {"result": functions[call["name"]](**call["arguments"])}
            except ValueError as error:
                answer = {"error": str(error)}
            answers.append({"call_id": call["call_id"], **answer})
        arguments = {"execution_id": waiting["execution_id"], "results": answers}
        results.append(client.call("continue_execution", arguments))
    return results


@pytest.mark.parametrize("sdk, transport", CLIENTS, ids=map("-".join, CLIENTS))
def test_a_program_by_every_client(gateway, own_gateway, sdk, transport):
    with client_of(sdk, transport, gateway, flags=own_gateway) as client:
        session = client.call("create_session").session_id
        results = play(client, CODE, [ORDERS], {"orders": orders}, session_id=session)
        states = [result.structured["status"] for result in results]
        assert states == ["tool_calls", "tool_calls", "ok"]
        assert "looking" in results[0].text and 'orders({"customer":"Ada"})' in results[0].text
        assert "continue_execution" in results[0].text
        assert "looking" not in results[1].text  # each result has what is new
        assert "{'Ada': 4, 'Bob': 4}" in results[-1].text
        assert results[-1].session_id == session


@pytest.fixture
def client(gateway, session):
    with WireClient(gateway) as client:
        client.session = session
        yield client


PRINTS_WHILE_A_CALL_WAITS = """
import threading, time, tools
got = []
thread = threading.Thread(target=lambda: got.append(tools.orders(customer="Ada")))
thread.start()
for n in range(2000):
    print(n, flush=True)
    time.sleep(0.01)
    if got:
        break
print("got", *got)
"""


def test_code_that_keeps_printing_while_a_call_waits(client):
    results = play(client, PRINTS_WHILE_A_CALL_WAITS, [ORDERS], {"orders": orders})
    assert [result.structured["status"] for result in results] == ["tool_calls", "ok"]
    assert results[1].text.count("got [{'customer': 'Ada'") == 1


def test_errors_and_wrong_answers(client):
    def failing(customer):
        raise ValueError(f"there is no {customer}")

    code = "import tools\ntry:\n    tools.orders(customer='x')\nexcept tools.ToolError as e:\n    print('said', e)"
    results = play(client, code, [ORDERS], {"orders": failing}, session_id=client.session)
    assert "said there is no x" in results[-1].text

    for arguments, message in (
        ({"tools": [{"name": ""}]}, "tools[0].name must be 1 to 128 printable"),
        ({"tools": [{"name": "a b"}]}, "tools[0].name must be"),
        ({"tools": {"name": "x"}}, "tools must be an array of objects"),
    ):
        refused = client.call("run_python_code", {"code": "1", **arguments})
        assert refused.is_error and message in refused.text

    code = "import tools; tools.orders(customer='y')"
    arguments = {"code": code, "tools": [ORDERS], "session_id": client.session}
    waiting = client.call("run_python_code", arguments).structured
    [call] = waiting["tool_calls"]
    answer = [{"call_id": call["call_id"], "result": []}]
    for execution, results, message in (
        (None, [{"call_id": call["call_id"] + "9", "result": 1}], "has made no call"),
        (None, [{"call_id": call["call_id"]}], "results[0] must be"),
        (None, [], "results must be a list of 1 to 256 results"),
        ("none", answer, "there is no execution none"),
        (None, answer, None),
        (None, answer, "does not wait any more"),
    ):
        arguments = {"execution_id": execution or waiting["execution_id"], "results": results}
        result = client.call("continue_execution", arguments)
        assert result.is_error == bool(message) and (message or "[]") in result.text


# The example of docs/tools.md: two tools, joined and drawn in one call of a model.
SHOPS = [{"shop": f"shop-{n}", "city": ("Oslo", "Lima", "Pune")[n % 3]} for n in range(300)]
SALES = [
    {"shop": f"shop-{n % 300}", "day": n // 300, "amount": n * 7919 % 100} for n in range(9000)
]
JOIN = """
import tools, pandas as pd, matplotlib.pyplot as plt
shops, sales = pd.DataFrame(tools.shops()), pd.DataFrame(tools.sales())
by_city = sales.merge(shops, on="shop").groupby("city").amount.sum()
by_city.plot.bar()
plt.show()
print(by_city.to_dict())
"""


def test_two_tools_are_joined_and_drawn_in_one_call(client):
    given = []

    def give(rows):
        given.append(len(json.dumps(rows)))
        return rows

    tools = [
        {"name": "shops", "description": "All shops"},
        {"name": "sales", "description": "All sales"},
    ]
    functions = {"shops": lambda: give(SHOPS), "sales": lambda: give(SALES)}
    results = play(client, JOIN, tools, functions, session_id=client.session)
    last = results[-1]
    expected = {
        city: sum(sale["amount"] for sale in SALES if SHOPS[int(sale["shop"][5:])]["city"] == city)
        for city in ("Lima", "Oslo", "Pune")
    }
    assert not last.is_error and str(expected) in last.text and last.image()
    # Some four characters are a token. The model reads its own code, and the last result.
    not_read, read = sum(given) // 4, (len(JOIN) + len(last.text)) // 4
    assert not_read > 100_000 > 500 > read
    print(
        f"{not_read} tokens of results did not pass through the model, which read and wrote {read}"
    )
