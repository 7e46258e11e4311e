# SPDX-License-Identifier: Apache-2.0
"""Small PDF files, by hand (ISO 32000-1, 7.5)."""


def pdf_file(*pages, catalog="", annotations=""):
    """A file whose pages have these content streams. `catalog`: more entries of the document;
    `annotations`: of each page."""
    count = len(pages)
    kids = " ".join(f"{3 + 2 * i} 0 R" for i in range(count))
    objects = [
        f"<</Type /Catalog /Pages 2 0 R {catalog}>>",
        f"<</Type /Pages /Kids [{kids}] /Count {count}>>",
    ]
    for i, content in enumerate(pages):
        objects += [
            f"<</Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Contents {4 + 2 * i} 0 R "
            f"/Resources <</Font <</F <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>>>>> "
            f"/Annots [{annotations}]>>",
            f"<</Length {len(content)}>>\nstream\n{content}\nendstream",
        ]
    text, offsets = "%PDF-1.7\n", []
    for number, each in enumerate(objects, 1):
        offsets.append(len(text))
        text += f"{number} 0 obj\n{each}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    return (
        f"{text}xref\n0 {size}\n0000000000 65535 f \n{table}"
        f"trailer\n<</Size {size} /Root 1 0 R>>\nstartxref\n{len(text)}\n%%EOF\n"
    ).encode("latin-1")
