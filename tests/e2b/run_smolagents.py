# SPDX-License-Identifier: Apache-2.0
"""smolagents: a CodeAgent with executor_type="e2b", as in its guide to secure code execution."""

from smolagents import CodeAgent, Model
from smolagents.models import ChatMessage, MessageRole

STEPS = [
    "Thought: I count.\n<code>\na, b = 0, 1\nfor _ in range(100):\n    a, b = b, a + b\nprint(a)\n</code>",
    "Thought: It is still there.\n<code>\nfinal_answer({'number': a})\n</code>",
]


class Scripted(Model):
    def generate(self, messages, **_):
        self.seen = messages
        return ChatMessage(role=MessageRole.ASSISTANT, content=STEPS.pop(0))


model = Scripted()
with CodeAgent(model=model, tools=[], executor_type="e2b") as agent:
    answer = agent.run("Can you give me the 100th Fibonacci number?")
assert answer == {"number": 354224848179261915075}, answer
assert "354224848179261915075" in str(model.seen[-1].content)
print("done")
