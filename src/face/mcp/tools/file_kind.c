// SPDX-License-Identifier: Apache-2.0
// Kinds of files that are not text.

#include "file_kind.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>

#include "text.h"

// The libraries are those of kernelspec/python/requirements.in, except where `also` installs one.

static const struct file_kind pdf = {
    "a PDF", "import pypdf; print(pypdf.PdfReader({}).pages[0].extract_text())",
    "To see a page: import pypdfium2; pypdfium2.PdfDocument(…)[0].render(scale=2).to_pil()"
    ".save(\"page.png\"), then read_file(path=\"page.png\")."};
static const struct file_kind workbook = {
    "an Excel workbook", "import pandas as pd; print(pd.read_excel({}, sheet_name=None))",
    "openpyxl reads its formulas and formats."};
static const struct file_kind old_workbook = {
    "an Excel workbook of the old format",
    "import pandas as pd; print(pd.read_excel({}, sheet_name=None))",
    "First call install_packages(packages=[\"xlrd\"])."};
static const struct file_kind open_workbook = {
    "an OpenDocument spreadsheet", "import pandas as pd; print(pd.read_excel({}, sheet_name=None))",
    "First call install_packages(packages=[\"odfpy\"])."};
static const struct file_kind document = {
    "a Word document",
    "import docx; print(\"\\n\".join(p.text for p in docx.Document({}).paragraphs))",
    "Document.tables has its tables."};
static const struct file_kind slides = {
    "a PowerPoint presentation",
    "import pptx; print([s.text_frame.text for p in pptx.Presentation({}).slides for s in p.shapes "
    "if s.has_text_frame])",
    "First call install_packages(packages=[\"python-pptx\"])."};
static const struct file_kind old_office = {
    "a document of an old Office format", "import olefile; print(olefile.OleFileIO({}).listdir())",
    "First call install_packages(packages=[\"olefile\"]). Better is the same document in a newer "
    "format."};
static const struct file_kind zip = {
    "a ZIP archive", "import zipfile; zipfile.ZipFile({}).printdir()", "extractall() unpacks it."};
static const struct file_kind tar = {"a tar archive", "import tarfile; tarfile.open({}).list()",
                                     "extractall() unpacks it."};
static const struct file_kind gzip = {
    "compressed by gzip", "import gzip; print(gzip.open({}).read(2000))",
    "pandas.read_csv() reads a .csv.gz as it is; tarfile.open() opens a .tar.gz."};
static const struct file_kind bzip2 = {"compressed by bzip2",
                                       "import bz2; print(bz2.open({}).read(2000))", NULL};
static const struct file_kind xz = {"compressed by xz",
                                    "import lzma; print(lzma.open({}).read(2000))", NULL};
static const struct file_kind zstandard = {
    "compressed by Zstandard",
    "import pyarrow as pa; print(pa.CompressedInputStream({}, \"zstd\").read(2000))", NULL};
static const struct file_kind parquet = {"a Parquet file",
                                         "import duckdb; print(duckdb.read_parquet({}).limit(10))",
                                         "pandas.read_parquet() reads it, too."};
static const struct file_kind arrow = {"an Arrow file",
                                       "import pandas as pd; print(pd.read_feather({}))", NULL};
static const struct file_kind sqlite = {
    "an SQLite database",
    "import sqlite3; print(sqlite3.connect({}).execute(\"select name, sql from "
    "sqlite_master\").fetchall())",
    NULL};
static const struct file_kind duckdb = {
    "a DuckDB database",
    "import duckdb; print(duckdb.connect({}, read_only=True).sql(\"show all tables\"))", NULL};
static const struct file_kind hdf5 = {"an HDF5 file",
                                      "import h5py; h5py.File({}).visititems(print)",
                                      "First call install_packages(packages=[\"h5py\"])."};
static const struct file_kind array = {
    "a NumPy array", "import numpy as np; a = np.load({}); print(a.shape, a.dtype)", NULL};
static const struct file_kind arrays = {
    "NumPy arrays", "import numpy as np; [print(k, v.shape) for k, v in np.load({}).items()]",
    NULL};
static const struct file_kind pickle = {"a Python pickle",
                                        "import pandas as pd; print(pd.read_pickle({}))", NULL};
static const struct file_kind image = {
    "an image that cannot be shown as it is",
    "from PIL import Image; i = Image.open({}); i.thumbnail((1500, 1500)); i.save(\"small.png\")",
    "Then call read_file(path=\"small.png\")."};
static const struct file_kind video = {
    "a video",
    "import subprocess; subprocess.run([\"ffmpeg\", \"-y\", \"-i\", {}, \"-frames:v\", \"1\", "
    "\"frame.png\"])",
    "Then read_file(path=\"frame.png\") shows its first picture."};
static const struct file_kind sound = {
    "sound", "import scipy.io.wavfile; print(scipy.io.wavfile.read({}))", NULL};
static const struct file_kind other = {
    "not text, and of no kind that is known here", "print(open({}, \"rb\").read(64))",
    "If it is text, call read_file with its encoding, for example encoding=\"gb18030\"."};

// A file is of the first kind whose bytes and end of the name fit.
static const struct {
    const char *bytes;
    unsigned short len, at;
    const char *ending; // or NULL
    const struct file_kind *kind;
} signs[] = {
    {"PK\3\4", 4, 0, ".xlsx", &workbook},
    {"PK\3\4", 4, 0, ".xlsm", &workbook},
    {"PK\3\4", 4, 0, ".docx", &document},
    {"PK\3\4", 4, 0, ".pptx", &slides},
    {"PK\3\4", 4, 0, ".ods", &open_workbook},
    {"PK\3\4", 4, 0, ".npz", &arrays},
    {"PK\3\4", 4, 0, NULL, &zip},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 8, 0, ".xls", &old_workbook},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 8, 0, NULL, &old_office},
    {"PAR1", 4, 0, NULL, &parquet},
    {"ARROW1", 6, 0, NULL, &arrow},
    {"SQLite format 3", 16, 0, NULL, &sqlite},
    {"DUCK", 4, 8, NULL, &duckdb},
    {"\x89HDF\r\n\x1a\n", 8, 0, NULL, &hdf5},
    {"\x93NUMPY", 6, 0, NULL, &array},
    {"\x1f\x8b", 2, 0, NULL, &gzip},
    {"BZh", 3, 0, NULL, &bzip2},
    {"\xfd\x37zXZ", 5, 0, NULL, &xz},
    {"\x28\xb5\x2f\xfd", 4, 0, NULL, &zstandard},
    {"ustar", 5, 257, NULL, &tar},
    {"\x89PNG\r\n\x1a\n", 8, 0, NULL, &image},
    {"\xff\xd8\xff", 3, 0, NULL, &image},
    {"GIF8", 4, 0, NULL, &image},
    {"WEBP", 4, 8, NULL, &image},
    {"II*", 4, 0, NULL, &image},
    {"MM\0*", 4, 0, NULL, &image},
    {"BM", 2, 0, ".bmp", &image},
    {"ftyp", 4, 4, NULL, &video},
    {"\x1a\x45\xdf\xa3", 4, 0, NULL, &video},
    {"WAVE", 4, 8, NULL, &sound},
    {"\x80", 1, 0, ".pkl", &pickle},
    {"\x80", 1, 0, ".pickle", &pickle},
};

static bool
ends_with(const char *path, const char *ending)
{
    size_t len = strlen(path), n = strlen(ending);
    return len >= n && strcasecmp(path + len - n, ending) == 0;
}

const struct file_kind *
file_kind_find(const char *path, const char *data, size_t len)
{
    if (len >= 5 && memcmp(data, "%PDF-", 5) == 0)
        return &pdf;
    if (text_is_readable(data, text_whole(data, len)))
        return NULL; // text that happens to begin like that
    for (size_t i = 0; i < KG_ARRAY_LEN(signs); i++) {
        if ((size_t)signs[i].at + signs[i].len <= len &&
            memcmp(data + signs[i].at, signs[i].bytes, signs[i].len) == 0 &&
            (!signs[i].ending || ends_with(path, signs[i].ending)))
            return signs[i].kind;
    }
    return NULL;
}

char *
file_kind_advice(const struct file_kind *kind, const char *path, int64_t size)
{
    kind = kind ? kind : &other;
    json_auto_t *name = json_string(path);
    KG_AUTO_FREE char *quoted = json_dumps(name, JSON_ENCODE_ANY);
    const char *gap = strstr(kind->how, "{}");
    KG_AUTO_BUF text = {0};
    buf_printf(&text, "%s is %s (%lld bytes). Read it with run_python_code:\n%.*s%s%s", path,
               kind->said, (long long)size, (int)(gap - kind->how), kind->how,
               quoted ? quoted : "path", gap + strlen("{}"));
    if (kind->also)
        buf_printf(&text, "\n%s", kind->also);
    return buf_take(&text);
}
