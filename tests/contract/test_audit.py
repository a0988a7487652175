"""``kunhook audit`` on the real SGLang: the stack changes nothing undeclared, and a plugin that does is found.

An interpreter takes as long as SGLang's import, so the two without us are shared by all tests.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys

import pytest

pytest.importorskip("sglang")

from kunhook import discovery
from kunhook.audit import run
from kunhook.audit.explain import explain
from kunhook.cli import options
from tests.support.distributions import distribution
from tests.support.server import clean_env

DEVICE = "kunlun"
TARGET = "sglang.srt.mem_cache.memory_pool.write_loc_is_physical"
HEAD = "from hookspecs import PluginInfo, TritonWorkaround, hookimpl\nplugin_info = PluginInfo()\n"
CONNECTED = f"{HEAD}\n@hookimpl\ndef init_backend():\n"


class Auditor:
    """A reference without us, and a folder on everybody's path where plugins come and go."""

    def __init__(self, folder):
        self.folder = folder
        self.site = folder / "site"
        self.site.mkdir()
        with self.here():
            self.plan = options.plan_of(None, ())
            self.plain = run.with_us(self.plan, DEVICE, folder)
            self.reference = run.without_us(DEVICE, folder, also=run.audited(self.plain))

    @contextlib.contextmanager
    def here(self):
        with pytest.MonkeyPatch.context() as patch:
            environment = clean_env(self.folder, {"KUNLUN_DEVICE": "sim", "PYTHONPATH": str(self.site)})
            for name in os.environ.keys() - environment.keys():
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.syspath_prepend(str(self.site))
            patch.chdir(self.folder)
            importlib.invalidate_caches()
            discovery.announcements.cache_clear()
            yield
        discovery.announcements.cache_clear()

    def explained(self, snapshot, plan):
        found = run.found(self.reference, snapshot)
        return explain(found, plan, self.reference.snapshot["process"]["sys.modules"])

    def report(self, name, source, *, answers=False):
        """The report on a process in which a plugin ran.

        Only a plugin that answers hooks takes part in the plan of this process: the others are not
        imported here, because importing them may be the deed.
        """
        distribution(self.site, name, entry_points={"kunhook.plugins": {name: name}}, modules={name: source})
        try:
            with self.here():
                plan = options.plan_of(None, ()) if answers else self.plan
                return self.explained(run.with_us(plan, DEVICE, self.folder, label=name), plan)
        finally:
            sys.modules.pop(name, None)
            for path in self.site.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture(scope="session")
def auditor(tmp_path_factory):
    return Auditor(tmp_path_factory.mktemp("audit"))


def unexplained(report):
    return {finding.where for finding in report.unexplained}


def test_the_default_profile_changes_nothing_undeclared(auditor):
    with auditor.here():
        report = auditor.explained(auditor.plain, auditor.plan)
    print("debts:", [finding.where for finding in report.debts] or "none")
    assert report.unexplained == ()
    assert report.debts == ()
    # The plan was connected: every seam that shows in an attribute does.
    hooks = {finding.hook for finding in report.explained}
    assert hooks == {
        "", "detect_device", "get_attn_backend_cls", "get_compile_backend", "get_op_impls", "get_process_env",
    }  # fmt: skip
    assert all(finding.seam and finding.why for finding in report.explained)


def test_the_reference_never_heard_of_us(auditor):
    tops = {name.partition(".")[0] for name in auditor.reference.snapshot["order"]}
    assert not tops & {"kunhook", "hookspecs", "kunlun_backend", "pluggy"}
    assert {"sglang", "torch", "transformers"} <= tops


def test_almost_nothing_is_noise(auditor):
    assert len(auditor.reference.noise) < 30


def test_an_attribute_set_on_a_class(auditor):
    report = auditor.report(
        "sets_attribute",
        CONNECTED + "    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool\n"
        "    MHATokenToKVPool.get_key_buffer = lambda self, layer_id: None\n"
        "    MHATokenToKVPool.mischief = 1\n",
    )
    owner = "sglang.srt.mem_cache.memory_pool.MHATokenToKVPool"
    assert unexplained(report) == {f"{owner}.get_key_buffer", f"{owner}.mischief"}


def test_a_fake_module(auditor):
    report = auditor.report(
        "fakes_modules",
        CONNECTED + "    import sys, types\n"
        "    for name in ('triton.made_up', 'torch.hub', 'made_up_kernels'):\n"
        "        sys.modules[name] = types.ModuleType(name)\n",
    )
    assert unexplained(report) == {"triton.made_up", "torch.hub", "sys.modules.made_up_kernels"}


def test_an_entry_added_in_place(auditor):
    report = auditor.report(
        "adds_entries",
        CONNECTED + "    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS\n"
        "    from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory\n"
        "    ATTENTION_BACKENDS['mischief'] = init_backend\n"
        "    StorageBackendFactory._registry['mischief'] = 'nothing'\n",
    )
    assert unexplained(report) == {
        "sglang.srt.layers.attention.attention_registry.ATTENTION_BACKENDS[mischief]",
        "sglang.srt.mem_cache.storage.backend_factory.StorageBackendFactory._registry[mischief]",
    }


def test_import_replaced(auditor):
    report = auditor.report(
        "replaces_import",
        CONNECTED + "    import builtins\n"
        "    original = builtins.__import__\n"
        "    builtins.__import__ = lambda *args, **kwargs: original(*args, **kwargs)\n",
    )
    assert unexplained(report) == {"builtins.__import__"}


def test_a_handler_on_the_root_logger(auditor):
    report = auditor.report(
        "adds_handler", CONNECTED + "    import logging\n    logging.getLogger().addHandler(logging.NullHandler())\n"
    )
    assert unexplained(report) == {"logging.root"}
    assert "logging.NullHandler" in report.unexplained[0].after


def test_a_warnings_filter(auditor):
    report = auditor.report(
        "filters_warnings",
        CONNECTED + "    import warnings\n    warnings.filterwarnings('ignore', message='mischief')\n",
    )
    assert unexplained(report) == {"warnings.filters"}
    assert "mischief" in report.unexplained[0].after


def test_an_import_finder(auditor):
    report = auditor.report(
        "finds_modules",
        HEAD + "import sys\nclass Finder:\n    def find_spec(self, name, path=None, target=None):\n"
        "        return None\nsys.meta_path.insert(0, Finder())\n",
    )
    assert unexplained(report) == {"sys.meta_path"}
    assert "finds_modules.Finder" in report.unexplained[0].after


def test_a_torch_function_replaced_at_import(auditor):
    report = auditor.report(
        "patches_torch",
        HEAD + "import functools, torch\noriginal = torch.hub.load\n"
        "@functools.wraps(original)\ndef load(*args, **kwargs):\n    return original(*args, **kwargs)\n"
        "torch.hub.load = load\n",
    )
    assert unexplained(report) == {"torch.hub.load"}


def test_a_declared_debt_is_a_debt(auditor):
    report = auditor.report(
        "owes",
        HEAD + "@hookimpl\ndef get_triton_workarounds():\n"
        f"    return {{'physical': TritonWorkaround(target='{TARGET}', replacement='owes:physical',\n"
        "        reason='a test', sglang='>=0.5.17', remove_when='the test is over')}\n"
        "def physical(loc_info):\n    return True\n",
        answers=True,
    )
    assert unexplained(report) == set()
    assert TARGET in {finding.where for finding in report.debts}
    assert {finding.hook for finding in report.debts} == {"get_triton_workarounds"}
