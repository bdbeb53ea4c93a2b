"""Prints the SBOM of a wheel as SPDX 2.3 JSON: the program, the libraries of distributions and the CUDA runtime."""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re


def spdx_id(text):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def package(name, version, licence, purl, **more):
    return {"SPDXID": spdx_id(f"Package-{name}"), "name": name, "versionInfo": version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
            "licenseDeclared": licence, "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": purl}], **more}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--libraries", required=True, type=pathlib.Path, help="list of scripts/wheel/licences.py")
    parser.add_argument("--wheel", required=True, type=pathlib.Path)
    options = parser.parse_args()

    digest = hashlib.sha256(options.wheel.read_bytes()).hexdigest()
    system = platform.freedesktop_os_release()["ID"]
    packages = [package("dpt-train", options.version, "MIT", f"pkg:pypi/dpt-train@{options.version}",
                        packageFileName=options.wheel.name,
                        checksums=[{"algorithm": "SHA256", "checksumValue": digest}])]
    for entry in json.loads(options.libraries.read_text()):
        name, version = entry["package"], entry["version"]
        if spdx_id(f"Package-{name}") not in (known["SPDXID"] for known in packages):
            # The licences themselves are in the wheel, in dist-info/licenses.
            packages.append(package(name, version, "NOASSERTION", entry.get(
                "purl", f"pkg:deb/{system}/{name}@{version.replace('+', '%2B')}")))
    made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                  "relatedSpdxElement": packages[0]["SPDXID"]}]
    relations += [{"spdxElementId": packages[0]["SPDXID"], "relationshipType": "CONTAINS",
                   "relatedSpdxElement": one["SPDXID"]} for one in packages[1:]]
    print(json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": options.wheel.name,
        "documentNamespace": f"https://spdx.org/spdxdocs/dpt-train-{options.version}-{digest[:32]}",
        "creationInfo": {"created": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: dpt-scripts-release"]},
        "packages": packages, "relationships": relations}, indent=1))


if __name__ == "__main__":
    main()
