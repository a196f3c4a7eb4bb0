"""The wheel has the program in it, so it is for one platform, and for each Python."""

from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        _python, _abi, platform = super().get_tag()
        return "py3", "none", platform


def shared():
    """Returns the manual pages and the completions by their folders, which pip makes below that of the environment."""
    folders = {}
    for path in sorted(path for path in Path("share").rglob("*") if path.is_file()):
        folders.setdefault(str(path.parent), []).append(str(path))
    return list(folders.items())


setup(cmdclass={"bdist_wheel": PlatformWheel}, data_files=shared())
