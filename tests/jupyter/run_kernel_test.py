# SPDX-License-Identifier: Apache-2.0
"""jupyter_kernel_test, Jupyter's tests of a kernel's answers to jupyter_client, with jupyter_server's
gateway client, on the gateway at KG_URL."""

import os
import unittest

import jupyter_kernel_test
from jupyter_client.utils import run_sync
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.gateway.managers import GatewayKernelManager

GatewayClient.instance().url = os.environ["KG_URL"]
DISPLAY = "from IPython.display import HTML, display; display(HTML('<b>a</b>'))"
PATIENCE = 30  # on a busy machine the suite's own 0.1 s are too short
IDLE = {"execution_state": "idle"}


def patient(get_msg):
    async def get(timeout):
        return await get_msg(timeout=max(timeout, PATIENCE))

    return get


class Tests(jupyter_kernel_test.KernelTests):
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": ["zip"]}]
    complete_code_samples = ["1", "print('hello')", "def f(x):\n  return x*2\n\n\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = [{"code": "1+2+3", "result": "6"}, {"code": "[1]", "result": "[1]"}]
    code_display_data = [{"code": DISPLAY, "mime": "text/html"}]
    test_history = None  # kernels keep none
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"

    @classmethod
    def setUpClass(cls):
        cls.km = GatewayKernelManager()
        run_sync(cls.km.start_kernel)()
        cls.kc = cls.km.client()
        run_sync(cls.kc.start_channels)()
        run_sync(cls.kc.wait_for_ready)(timeout=60)
        cls.kc.get_shell_msg = run_sync(cls.kc.get_shell_msg)
        cls.kc.iopub_channel.get_msg = patient(cls.kc.iopub_channel.get_msg)

    @classmethod
    def tearDownClass(cls):
        cls.kc.stop_channels()
        run_sync(cls.km.shutdown_kernel)()

    def flush_channels(self):
        """Reads all that came before the answer to another request, instead of what comes in 0.1 s."""
        msg_id = self.kc.kernel_info()
        for channel, last in (self.kc.shell_channel, {}), (self.kc.iopub_channel, IDLE):
            message = {"parent_header": {}, "content": {}}
            while (
                message["parent_header"].get("msg_id") != msg_id
                or {**message["content"], **last} != message["content"]
            ):
                message = run_sync(channel.get_msg)(timeout=PATIENCE)
                jupyter_kernel_test.validate_message(message)


result = unittest.main(exit=False, verbosity=2).result
assert result.wasSuccessful() and not result.skipped
print("done")
