# SPDX-License-Identifier: Apache-2.0
"""requirements.py WHEEL NAME...: prints what a wheel requires here, but for the packages named."""
import email
import sys
import zipfile

from pip._vendor.packaging.requirements import Requirement

wheel, *left_out = sys.argv[1:]
with zipfile.ZipFile(wheel) as files:
    metadata = next(name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
    declared = email.message_from_bytes(files.read(metadata)).get_all("Requires-Dist", [])
for requirement in map(Requirement, declared):
    applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if applies and requirement.name not in left_out:
        requirement.marker = None
        print(requirement)
