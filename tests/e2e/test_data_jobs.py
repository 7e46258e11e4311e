# SPDX-License-Identifier: Apache-2.0
"""Jobs as agents get them, written as a model would write them: over HTTP, and by MCP's tools."""

import io
import re
import zipfile

import pytest
from kernelgate import wait_for
from mcp_clients import client_of
from PIL import Image


class OverHttp:
    """A session and what an agent does in it."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.session = gateway.create_session()

    def close(self):
        self.gateway.delete_session(self.session)

    def put(self, name, text):
        url = f"/api/v1/sessions/{self.session}/files/{name}"
        assert self.gateway.client.put(url, content=text.encode()).is_success

    def get(self, name):
        answer = self.gateway.client.get(f"/api/v1/sessions/{self.session}/files/{name}")
        assert answer.status_code == 200, answer.text
        return answer.content

    def run(self, code, fails=False):
        lines = self.gateway.execute(code, session_id=self.session, timeout=240)
        assert (lines.status != "ok") == fails, lines
        errors = [line for error in lines.of("error") for line in error["traceback"]]
        shown = [line.get("text", "") for line in lines if line["type"] in ("result", "display")]
        return "\n".join([lines.text(), lines.text("stderr"), *shown, *errors])

    def shell(self, command):
        url = f"/api/v1/sessions/{self.session}/commands?wait=1"
        return self.gateway.client.post(url, json={"command": command}).json()["stdout"]


class OverMcp(OverHttp):
    """Files come back by HTTP, as a person would fetch them."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.client = client_of("1", "http", gateway).__enter__()
        self.session = self.client.call("create_session").session_id

    def close(self):
        self.client.call("close_session", {"session_id": self.session})
        self.client.__exit__()

    def put(self, name, text):
        assert not self.client.call("write_file", self.of(path=name, content=text)).is_error

    def run(self, code, fails=False):
        result = self.client.call("run_python_code", self.of(code=code, timeout="240"))
        assert result.is_error == fails, result.text
        return result.text

    def shell(self, command):
        return self.client.call("run_command", self.of(command=command)).text

    def of(self, **arguments):
        return {"session_id": self.session, **arguments}


@pytest.fixture(params=[OverHttp, OverMcp], ids=["http", "mcp"])
def agent(request, gateway):
    agent = request.param(gateway)
    yield agent
    agent.close()


MESSY = """Region;Umsatz 2023 ;"Umsatz 2024";Notiz
 Zürich;1'234,50;1.300,00;ok
"Genf";n/a;980,10;"mehrere; Zeilen
im Feld"
東京;2.000,00;2 100,75;
القاهرة;500,00;;neu
"""

CLEAN = r"""
import io, re
import pandas as pd
table = pd.read_csv("messy.csv", sep=";", skipinitialspace=True)
table.columns = [name.strip() for name in table.columns]
def number(text):
    digits = re.sub(r"[^\d,]", "", str(text)).replace(",", ".")
    return float(digits) if digits else None
for name in ("Umsatz 2023", "Umsatz 2024"):
    table[name] = table[name].map(number)
with pd.ExcelWriter("clean.xlsx", engine="xlsxwriter") as writer:
    table.to_excel(writer, sheet_name="Umsatz", index=False)
print(table.to_markdown(index=False))
table.style.format(precision=1).to_html("clean.html")
"""

CHART = r"""
import matplotlib.pyplot as plt
axes = table.set_index("Region").plot.barh(title="売上 Umsatz", figsize=(8, 4))
axes.figure.tight_layout()
axes.figure.savefig("chart.png", dpi=150)
axes.figure.savefig("chart.pdf")
plt.close(axes.figure)
"""


def test_a_messy_table_becomes_a_workbook_and_a_chart(agent):
    agent.put("messy.csv", MESSY)
    said = agent.run(CLEAN)
    assert "| Zürich" in said and "1234.5" in said and "2100.75" in said and "東京" in said
    assert zipfile.ZipFile(io.BytesIO(agent.get("clean.xlsx"))).testzip() is None
    assert "<table" in agent.get("clean.html").decode()
    assert "missing from" not in agent.run(CHART)  # a warning that a glyph has no font
    image = Image.open(io.BytesIO(agent.get("chart.png")))
    assert image.size == (1200, 600)
    assert agent.get("chart.pdf").startswith(b"%PDF")


# The same table for readers of paper, as a model writes it that knows nothing of fonts.
PAPER = r"""
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Paragraph, SimpleDocTemplate, Table
styles = getSampleStyleSheet()
rows = [list(table.columns)] + [[str(value) for value in row] for row in table.values]
SimpleDocTemplate("report.pdf").build([
    Paragraph("売上 Umsatz: المبيعات في القاهرة", styles["Title"]),
    Paragraph("ยอดขาย, बिक्री, מכירות, 매출, 销售额 ✓", styles["Normal"]),
    Table(rows),
])
"""

READ_PAPER = """
import pypdf, pypdfium2
print(pypdf.PdfReader("report.pdf").pages[0].extract_text())
page = pypdfium2.PdfDocument("report.pdf")[0]
page.render(scale=2).to_pil().save("page.png")
"""


def test_a_messy_table_becomes_a_pdf(agent):
    agent.put("messy.csv", MESSY)
    agent.run(CLEAN)
    assert "No font has" not in agent.run(PAPER)
    said = agent.run(READ_PAPER)
    assert all(each in said for each in ("Zürich", "東京", "売上", "매출", "销售额", "ยอดขาย")), (
        said
    )
    assert Image.open(io.BytesIO(agent.get("page.png"))).size == (1191, 1684)
    if isinstance(agent, OverMcp):
        said = agent.client.call("read_file", agent.of(path="report.pdf")).text
        assert "report.pdf is a PDF" in said and "pypdf" in said


SCRIPTS = {
    "Arabic": "بتثجحخ", "Chinese": "销售额汉语区", "Devanagari": "कखगघचछ", "emoji": "😀🎉✅❌🚀",
    "Greek": "αβγδεζ", "Hebrew": "אבגדהו", "Japanese": "あいうカキク", "Korean": "한국어매출은",
    "Tamil": "கஙசஜஞட", "Thai": "กขคงจฉ",
}  # fmt: skip

# Draws each character alone, and prints how many of the pictures are not blank and differ.
DRAW = r"""
import io
import matplotlib.pyplot as plt, pypdfium2
from reportlab.pdfgen import canvas

def by_matplotlib(character, format="png", **font):
    figure = plt.figure(figsize=(1, 1))
    figure.text(0.2, 0.2, character, size=40, **font)
    data = io.BytesIO()
    figure.savefig(data, format=format, metadata={"CreationDate": None} if format == "pdf" else None)
    plt.close(figure)
    return data.getvalue() if format == "png" else drawn(data.getvalue())

def by_reportlab(character, font):
    data = io.BytesIO()
    page = canvas.Canvas(data, (80, 80))
    page.setFont(font, 40)
    page.drawString(20, 20, character)
    page.save()
    return drawn(data.getvalue())

def drawn(pdf):
    return bytes(pypdfium2.PdfDocument(pdf)[0].render().buffer)

ways = [
    lambda c: by_matplotlib(c),
    lambda c: by_matplotlib(c, weight="bold", family="monospace"),
    lambda c: by_reportlab(c, "Helvetica"),
    lambda c: by_reportlab(c, "Times-Bold"),
    lambda c: by_matplotlib(c, "pdf"),  # pdfium shows no large emoji of such a file
]
for name, characters in SCRIPTS.items():
    used = ways[:-1] if name == "emoji" else ways
    print(name, [len({way(c) for c in characters} - {way(" ")}) for way in used])
"""


def test_each_script_has_its_glyphs(agent):
    """Boxes, for what no font has, would be the same picture for all letters of a script."""
    said = agent.run(f"SCRIPTS = {SCRIPTS!r}\n{DRAW}")
    expected = {name: [len(text)] * 5 for name, text in SCRIPTS.items()}
    expected["emoji"].pop()
    lines = [f"{name} {counts}" for name, counts in expected.items()]
    assert said.rstrip().splitlines() == lines


MISSING = """
import matplotlib.pyplot as plt
for i in range(3):
    plt.title("\\U00012000 sales"); plt.savefig("a.png")
plt.close()
"""
MISSING_IN_A_PDF = """
from reportlab.pdfgen import canvas
page = canvas.Canvas("a.pdf")
for i in range(3):
    page.drawString(10, 10, "\\U00012000 sales")
page.save()
"""


def test_a_character_that_no_font_has_is_named_once(agent):
    said = agent.run(MISSING)
    assert said.count("(\\N{CUNEIFORM SIGN A}) missing from font(s) DejaVu Sans, ") == 1, said
    assert len(said) < 400
    said = agent.run(MISSING_IN_A_PDF)
    assert said.count("No font has \U00012000 (CUNEIFORM SIGN A): the PDF has a box") == 1, said


PARQUET = """
import duckdb, numpy as np, pandas as pd
random = np.random.default_rng(2)
sales = pd.DataFrame({
    "day": pd.date_range("2025-01-01", periods=20_000, freq="15min"),
    "shop": random.choice(["東京", "Zürich", "القاهرة"], 20_000),
    "amount": np.arange(20_000) % 100,
})
sales.to_parquet("sales.parquet")
shops = pd.DataFrame({"shop": ["東京", "Zürich", "القاهرة"], "country": ["JP", "CH", "EG"]})
answer = duckdb.sql('''
    select country, count(*) as n, sum(amount) as total
    from 'sales.parquet' join shops using (shop)
    where day < '2025-03-01' group by country order by country
''')
print(answer)
duckdb.sql('''
    copy (select month(day) as month, avg(amount) as mean from 'sales.parquet' group by 1 order by 1)
    to 'months.parquet'
''')
print(pd.read_parquet("months.parquet").to_string())
database = duckdb.connect("sales.duckdb")
database.execute("create table sales as select * from 'sales.parquet'")
print("rows", database.sql("select count(*) from sales").fetchone()[0])
database.close()
"""


def test_parquet_and_sql(agent):
    said = agent.run(PARQUET)
    assert all(each in said for each in ("CH", "EG", "JP", "rows 20000")), said
    assert agent.get("sales.parquet").startswith(b"PAR1")


MANY_KINDS = """
import glob, sqlite3, subprocess, tarfile, zipfile
import docx, duckdb, numpy as np, pandas as pd, pyarrow as pa, scipy.io.wavfile
from PIL import Image
from reportlab.pdfgen import canvas
table = pd.DataFrame({"city": ["Basel", "東京"], "n": [1, 2]})
page = canvas.Canvas("a.pdf"); page.drawString(10, 10, "Basel"); page.save()
table.to_excel("a.xlsx"); table.to_parquet("a.parquet"); table.to_feather("a.feather")
table.to_csv("a.csv.gz"); table.to_csv("a.csv.bz2"); table.to_csv("a.csv.xz"); table.to_pickle("a.pkl")
with pa.CompressedOutputStream("a.zst", "zstd") as out: out.write(b"Basel" * 9)
document = docx.Document(); document.add_paragraph("Basel"); document.save("a.docx")
with sqlite3.connect("a.db") as base: table.to_sql("t", base)
with duckdb.connect("a.duckdb") as base: base.execute("create table t (a int)")
np.save("a.npy", np.arange(3)); np.savez("a.npz", a=np.arange(3))
with zipfile.ZipFile("a.zip", "w") as archive: archive.write("a.pdf")
with tarfile.open("a.tar", "w") as archive: archive.add("a.pdf")
Image.new("RGB", (64, 64), "red").save("a.tiff"); Image.new("RGB", (64, 64)).save("a.bmp")
subprocess.run("ffmpeg -loglevel error -loop 1 -i a.bmp -t 1 -pix_fmt yuv420p a.mp4", shell=True, check=True)
scipy.io.wavfile.write("a.wav", 8000, np.zeros(800, "int16"))
open("a.bin", "wb").write(bytes(range(256)))
print(*sorted(glob.glob("a.*")))
"""


def test_what_read_file_says_can_be_run(gateway):
    with client_of("1", "http", gateway) as client:
        made = client.call("run_python_code", {"code": MANY_KINDS, "timeout": 120})
        assert not made.is_error, made.text
        paths = made.text.splitlines()[0].split()
        assert len(paths) == 21
        for path in paths:
            said = client.call("read_file", {"path": path}).text
            (code,) = [line for line in said.splitlines() if re.match("import |from |print", line)]
            result = client.call("run_python_code", {"code": code})
            assert not result.is_error and path in code, (said, result.text)
        client.call("close_session")


WORKBOOK = """
import xlsxwriter
book = xlsxwriter.Workbook("budget.xlsx")
sheet = book.add_worksheet("2026")
for row, (what, cost) in enumerate([("rent", 1200), ("power", 90.5), ("food", 640)]):
    sheet.write_row(row, 0, [what, cost])
sheet.write(3, 0, "total")
sheet.write_formula("B4", "=SUM(B1:B3)", None, 1930.5)
chart = book.add_chart({"type": "pie"})
chart.add_series({"categories": "='2026'!$A$1:$A$3", "values": "='2026'!$B$1:$B$3"})
sheet.insert_chart("D2", chart)
book.close()
import openpyxl
print(openpyxl.load_workbook("budget.xlsx")["2026"]["B4"].value)
print(openpyxl.load_workbook("budget.xlsx", data_only=True)["2026"]["B4"].value)
"""


def test_a_workbook_with_formulas(agent):
    said = agent.run(WORKBOOK)
    assert "=SUM(B1:B3)" in said and "1930.5" in said
    listed = agent.shell("ls *.{xlsx,csv} 2>/dev/null; [[ -s budget.xlsx ]] && echo not empty")
    assert "budget.xlsx\nnot empty" in listed


ROWS = """
import numpy as np, pandas as pd
random = np.random.default_rng(1)
table = pd.DataFrame({
    "day": pd.date_range("2020-01-01", periods=50_000, freq="h"),
    "shop": random.choice(["north", "south", "west"], 50_000),
    "sales": random.gamma(2, 50, 50_000).round(2),
})
table.loc[::997, "sales"] = np.nan
table.to_csv("rows.csv", index=False)
table = pd.read_csv("rows.csv", parse_dates=["day"])
table.describe()
"""


def test_fifty_thousand_rows(agent):
    assert "49949" in agent.run(ROWS)
    said = agent.run("print(table.sales.isna().sum()); table.groupby('shop').sales.mean().round(1)")
    assert "51\n" in said and "north" in said
    assert "[50000 rows x 3 columns]" in agent.run("table")  # a part of it
    assert "outlier" in agent.run("print('outlier', table.nlargest(3, 'sales').to_string())")


def test_tables_of_a_page(agent):
    agent.put("page.html", "<table><tr><th>city<th>people</tr><tr><td>Basel<td>174442</table>")
    said = agent.run("import pandas as pd; print(pd.read_html('page.html')[0].to_string())")
    assert "Basel" in said and "174442" in said
    said = agent.run("import bs4; print(bs4.BeautifulSoup(open('page.html'), 'html5lib').td.text)")
    assert said.startswith("Basel")


ANIMATION = """
import matplotlib.pyplot as plt, numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
figure, axes = plt.subplots(figsize=(3, 2))
(line,) = axes.plot([], [])
axes.set_xlim(0, 6.3); axes.set_ylim(-1, 1)
x = np.linspace(0, 6.3, 60)
def draw(i):
    line.set_data(x, np.sin(x + i / 3))
    return [line]
animation = FuncAnimation(figure, draw, frames=12)
animation.save("wave.gif", writer=PillowWriter(fps=12))
animation.save("wave.mp4", fps=12)
plt.close(figure)
"""


def test_an_animation(agent):
    agent.run(ANIMATION)
    image = Image.open(io.BytesIO(agent.get("wave.gif")))
    assert image.n_frames == 12 and image.size == (300, 200)
    assert agent.get("wave.mp4")[4:8] == b"ftyp"
    said = agent.shell("ffmpeg -hide_banner -i wave.mp4 -f null - 2>&1")
    assert "Video: h264" in said and "300x200" in said and "frame=   12" in said, said


JOB = """
import time
with open("progress.log", "w") as log:
    for i in range(5):
        print(f"step {i}", file=log, flush=True)
        time.sleep(0.2)
open("done.txt", "w").write("42")
"""


def test_a_long_job_in_the_background(agent):
    agent.put("job.py", JOB)
    agent.shell("nohup python job.py >job.out 2>&1 &")
    wait_for(lambda: "step 1" in agent.shell("tail -1 progress.log"))
    assert "7" in agent.run("3 + 4")  # the kernel is free meanwhile
    wait_for(lambda: agent.shell("cat done.txt 2>/dev/null").startswith("42"))
    assert agent.shell("wc -l < progress.log").startswith("5")


def test_a_website_that_cannot_be_reached(agent):
    said = agent.run("import pandas as pd; pd.read_csv('https://example.org/data.csv')", fails=True)
    assert "There is no network in this sandbox" in said and "file_urls" in said
    said = agent.run("import polars", fails=True)
    assert "`%pip install polars` adds it" in said
