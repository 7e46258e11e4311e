# SPDX-License-Identifier: Apache-2.0
"""read_file: encodings of text, and what it says about files that are not text or not there."""

import base64
import io
import re
import sqlite3
import zipfile

import pytest
from mcp_clients import WireClient
from PIL import Image


@pytest.fixture(scope="module")
def client(gateway):
    with WireClient(gateway) as client:
        yield client
        client.call("close_session")


def put(client, path, data):
    content = base64.b64encode(data).decode()
    arguments = {"path": path, "content": content, "encoding": "base64"}
    assert not client.call("write_file", arguments).is_error


def read(client, path, **arguments):
    result = client.call("read_file", {"path": path, **arguments})
    assert not result.is_error and result.text, result
    return result.text


def in_parts(client, path, limit, **arguments):
    """The text, read as a model does that follows the last line; and the note on the encoding."""
    text, note = "", None
    while True:
        part = read(client, path, limit=limit, **arguments)
        match = re.fullmatch(
            r"(?s)(.*?)(\n\[encoding: [^\n]*\])?\n\[bytes (\d+) to (\d+) of \d+"
            r'(; go on with offset=\d+(, encoding="[^"]*")?)?\]',
            part,
        )
        assert match and int(match[3]) == arguments.get("offset", 0) < int(match[4]), part
        text, note = text + match[1], match[2]
        arguments["offset"] = int(match[4])
        if not match[5]:
            return text, note


ACCENTS = "Straße; 1.234,50 €; naïve “quoted”\r\n"
EVERYWHERE = "Ελλάδα, Россия, 東京, العربية, ไทย, 😀\n"


@pytest.mark.parametrize(
    "text, encoding, said",
    [
        (EVERYWHERE, "utf-8", ""),
        (EVERYWHERE, "utf-8-sig", 'utf-8 with a byte order mark, in Python "utf-8-sig"'),
        (EVERYWHERE, "utf-16-le", "utf-16le with a byte order mark"),
        (EVERYWHERE, "utf-16-be", "utf-16be with a byte order mark"),
        (ACCENTS, "cp1252", "windows-1252, assumed since this is not UTF-8"),
    ],
)
def test_the_encoding_is_found_out(client, text, encoding, said):
    data = text.encode(encoding)
    if encoding.startswith("utf-16"):
        data = "\ufeff".encode(encoding) + data
    put(client, "text.csv", data)
    whole = read(client, "text.csv")
    assert whole.startswith(text.rstrip("\n"))
    assert (f"[encoding: {said}" in whole) if said else "[" not in whole
    put(client, "long.csv", data + text.encode(encoding.replace("-sig", "")) * 9)
    for limit in (4, 7, 100):
        read_text, note = in_parts(client, "long.csv", limit)
        assert read_text == text * 10
    assert not said or said in note or encoding == "cp1252"  # its last part may be ASCII


@pytest.mark.parametrize(
    "text, encoding, spelling",
    [
        ("中文，繁體\n", "gb18030", "GBK"),
        ("繁體中文\n", "big5", "Big5"),
        ("日本語、カタカナ\n", "cp932", "Shift-JIS"),
        ("日本語\n", "euc-jp", "EUC_JP"),
        ("한국어\n", "euc-kr", "cp949"),
        ("Привет, мир\n", "cp1251", "windows-1251"),
        ("Привет\n", "koi8-r", "koi8-r"),
        ("Ελλάδα\n", "iso8859-7", "ISO-8859-7"),
        ("ภาษาไทย\n", "cp874", "tis-620"),
        ("Łódź\n", "cp1250", "1250"),
        ("שלום\n", "cp1255", "CP1255"),
        ("مرحبا\n", "cp1256", "cp1256"),
        (ACCENTS, "cp1252", "latin-1"),
        (EVERYWHERE, "utf-16-le", "UTF-16"),
        (EVERYWHERE, "utf-8", "UTF8"),
    ],
)
def test_an_encoding_that_is_named(client, text, encoding, spelling):
    put(client, "named.txt", text.encode(encoding) * 20)
    assert in_parts(client, "named.txt", 7, encoding=spelling)[0] == text * 20


@pytest.mark.parametrize(
    "encoding, spelling",
    [
        ("utf-16le", "utf-16"),
        ("utf-16be", "utf-16"),
        ("utf-16be", "utf-16le"),
        ("utf-8", "utf-8-sig"),
    ],
)
def test_a_mark_says_which_of_a_family_it_is(client, encoding, spelling):
    text = "Zürich, 東京\n" * 20
    put(client, "marked.txt", ("\ufeff" + text).encode(encoding))
    assert in_parts(client, "marked.txt", 100, encoding=spelling)[0] == text


def test_an_encoding_that_cannot_be_told(client):
    put(client, "sjis.txt", "表示、カタカナ\n".encode("cp932"))  # has bytes that windows-1252 lacks
    said = read(client, "sjis.txt")
    assert "not text" in said and "encoding=" in said
    refused = client.call("read_file", {"path": "sjis.txt", "encoding": "ebcdic"})
    assert refused.structured["code"] == "invalid_request"
    assert '"ebcdic" is not known' in refused.text and "shift_jis" in refused.text


def test_what_is_not_valid_is_replaced(client):
    put(client, "bad.txt", b"a\0b\x81\xff\xfe\nend")
    for encoding in ("utf-8", "utf-16le", "windows-1252", "gb18030", "euc-kr"):
        said = read(client, "bad.txt", encoding=encoding)
        assert "\0" not in said and ("\ufffd" in said or encoding == "utf-16le"), said
    put(client, "odd.txt", b"\xff\xfea\0\0\xd8\0\0b")
    assert read(client, "odd.txt").startswith("a\ufffd\ufffd\ufffd\n[encoding: utf-16le")


def zip_with(*names):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return data.getvalue()


def a_database():
    database = sqlite3.connect(":memory:")
    database.execute("create table t (a)")
    return database.serialize()


@pytest.mark.parametrize(
    "path, data, said",
    [
        ("a.pdf", b"%PDF-1.7\n1 0 obj\n", ["a PDF", 'pypdf.PdfReader("a.pdf")', "pypdfium2"]),
        ("b.XLSX", zip_with("xl/workbook.xml"), ["an Excel workbook", "read_excel", "openpyxl"]),
        ("c.docx", zip_with("word/document.xml"), ["a Word document", "docx.Document"]),
        ("d.zip", zip_with("e"), ["a ZIP archive", "zipfile"]),
        ("f.parquet", b"PAR1\x15\0\x15", ["a Parquet file", "duckdb.read_parquet"]),
        ("g.db", a_database, ["an SQLite database", "sqlite3"]),
        ("h.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), ["old format", "xlrd"]),
        ("i.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\3", ["compressed by gzip", "gzip.open"]),
        ("j.tiff", b"II*\0\x08\0\0\0", ["an image that cannot be shown", "PIL"]),
        ("k.mp4", b"\0\0\0\x20ftypisom\0\0\2\0", ["a video", "ffmpeg"]),
        ("l.bin", b"\0\1\2\3", ["not text", "open(", "encoding"]),
        ('m "q".pdf', b"%PDF-1.7", ['PdfReader("m \\"q\\".pdf")']),
    ],
)
def test_what_is_not_text(client, path, data, said):
    data = data() if callable(data) else data
    put(client, path, data)
    result = client.call("read_file", {"path": path})
    assert f"({len(data)} bytes)" in result.text and all(each in result.text for each in said)
    assert result.of("resource_link")[0]["name"] == path
    if len(data) > 4:  # in the middle, too
        assert client.call("read_file", {"path": path, "offset": 3}).text == result.text


def test_a_name_that_is_wrong(client):
    put(client, "not.png", b"only text\n")
    assert read(client, "not.png").startswith("only text")
    picture = io.BytesIO()
    Image.new("RGB", (3, 2)).save(picture, "PNG")
    put(client, "is.csv", picture.getvalue())
    assert "an image" in read(client, "is.csv")
    put(client, "gif.txt", b"GIF89a and PAR1 are how such files begin\n")
    assert read(client, "gif.txt").startswith("GIF89a and")


def test_a_large_image(client):
    picture = io.BytesIO()
    Image.effect_noise((1300, 1300), 90).convert("RGB").save(picture, "BMP")
    data = b"\x89PNG\r\n\x1a\n" + picture.getvalue()
    put(client, "large.png", data[: 4 << 20])
    assert "an image that cannot be shown" in read(client, "large.png")


def test_a_file_that_is_not_there(gateway):
    with WireClient(gateway) as client:
        client.call("run_python_code", {"code": "set a 1"})
        said = client.call("read_file", {"path": "sale.csv"})
        assert said.structured["code"] == "not_found" and "There are no files yet." in said.text
        for name in ("data/Sales.csv", "other.txt", "third.txt"):
            put(client, name, b"x")
        said = client.call("read_file", {"path": "/mnt/data/sale.csv"}).text
        assert "Near it: data/Sales.csv; list_files shows all." in said
        said = client.call("read_file", {"path": "report.docx"}).text
        assert "There are: data/Sales.csv, other.txt, third.txt." in said
        long = "長" * 80
        put(client, long, b"x")
        said = client.call("read_file", {"path": "長" * 79})
        assert f"Near it: {long[:66]}; list_files" in said.text
        client.call("close_session")


def test_errors_say_what_to_do(client):
    put(client, "there.txt", b"x")
    cases = [
        ("write_file", {"path": "there.txt", "content": "", "overwrite": False}, "overwrite=true"),
        ("run_python_code", {"code": "1", "timeout": 1e9}, "timeout must be"),
        ("run_code", {"code": "1", "language": "cobol"}, "there are: "),
        ("interrupt_session", {"session_id": "nobodys"}, "list_sessions"),
        ("read_file", {"path": "kernelgate-output://nothing"}, "run the code again"),
    ]
    for name, arguments, said in cases:
        result = client.call(name, arguments)
        assert result.is_error and said in result.text, result.text
    slow = client.call("run_command", {"command": "sleep 60", "timeout": 0.2})
    assert "pass a larger timeout" in slow.text and "nohup" in slow.text
