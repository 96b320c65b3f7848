"""The second level in stores other than S3's: Google Cloud Storage and Azure Blob Storage, which are
imitated here as far as Eyrie asks for anything, and a folder."""

import base64
import contextlib
import email.utils
import http.server
import json
import os
import re
import shutil
import tempfile
import threading
import urllib.parse
import xml.etree.ElementTree
from xml.sax.saxutils import escape

import stores
from harness import EYRIE
from nodes import Nodes, expected
from stores import end_of, from_the_store, refused, the_id

BUCKET = "states"
MOST_LISTED = 3
ISO = "2026-01-01T00:00:00.000Z"
DATE = email.utils.formatdate(0, usegmt=True)
PART_BYTES = 16 << 20


class Imitation(http.server.BaseHTTPRequestHandler):
    """What both have in common. Answers only who shows the right key; lists few objects at a time."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        body = body.encode() if isinstance(body, str) else body
        for name, value in {"ETag": '"tag"', "Last-Modified": DATE, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fails(self, status, code):
        self.answer(status, f"<Error><Code>{code}</Code><Message>it is so</Message></Error>")

    def gives(self, content):
        """An object, or the part of it that is asked for."""
        begin, end = 0, len(content) - 1
        wanted = self.headers.get("Range")
        if wanted:
            first, last = wanted.removeprefix("bytes=").split("-")
            begin, end = int(first), min(int(last or end), end)
            if begin > end:
                return self.fails(416, "InvalidRange")
        part = content[begin : end + 1]
        about = {"Content-Range": f"bytes {begin}-{end}/{len(content)}"} if wanted else {}
        self.answer(206 if wanted else 200, part, **about)

    def listed(self, prefix, after):
        """The next few names, and after which there are more."""
        names = sorted(n for n in self.server.objects if n.startswith(prefix) and n > after)
        more = names[MOST_LISTED - 1] if len(names) > MOST_LISTED else ""
        return names[:MOST_LISTED], more

    def whatever(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urllib.parse.urlsplit(self.path)
        asked = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
        if not self.is_known():
            return self.fails(*self.UNKNOWN)
        if bucket != BUCKET:
            return self.fails(404, self.NO_BUCKET)
        with self.server.lock:
            self.does(key, asked, body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = whatever

    def plainly(self, key, body):
        """What both do in the same way."""
        objects = self.server.objects
        if self.command == "PUT":
            objects[key] = body
            self.answer(201)
        elif key not in objects:
            self.fails(404, self.NO_OBJECT)
        elif self.command == "DELETE":
            del objects[key]
            self.answer(204)
        else:
            self.gives(objects[key])


class Google(Imitation):
    UNKNOWN, NO_BUCKET, NO_OBJECT = (401, "AuthenticationRequired"), "NoSuchBucket", "NoSuchKey"

    def is_known(self):
        return self.headers.get("Authorization") == "Bearer token-of-the-test"

    def does(self, key, asked, body):
        begun = self.server.begun
        if "list-type" in asked:
            names, more = self.listed(asked.get("prefix", ""), asked.get("continuation-token", ""))
            self.answer(200, self.list_of(names, more))
        elif "uploads" in asked:
            number = f"upload-{self.server.count()}"
            begun[number] = {}
            self.answer(200, f"<I><UploadId>{number}</UploadId></I>")
        elif "uploadId" in asked and asked["uploadId"] not in begun:
            self.fails(404, "NoSuchUpload")
        elif "partNumber" in asked:
            begun[asked["uploadId"]][int(asked["partNumber"])] = body
            self.answer(200)
        elif "uploadId" in asked:
            parts = begun.pop(asked["uploadId"])
            if self.command == "POST":
                self.server.objects[key] = b"".join(parts[n] for n in sorted(parts))
                self.server.in_parts.append(len(parts))
            self.answer(200, "<C><ETag>tag</ETag></C>")
        else:
            self.plainly(key, body)

    def list_of(self, names, more):
        objects = self.server.objects
        each = "".join(
            f"<Contents><Key>{escape(n)}</Key><LastModified>{ISO}</LastModified>"
            f"<Size>{len(objects[n])}</Size></Contents>" for n in names)
        token = more and f"<NextContinuationToken>{escape(more)}</NextContinuationToken>"
        return f"<ListBucketResult>{each}{token}</ListBucketResult>"


class Azure(Imitation):
    UNKNOWN = (403, "AuthenticationFailed")
    NO_BUCKET, NO_OBJECT = "ContainerNotFound", "BlobNotFound"

    def is_known(self):
        return self.headers.get("Authorization", "").startswith("SharedKey account:")

    def does(self, key, asked, body):
        begun = self.server.begun
        if asked.get("comp") == "list":
            names, more = self.listed(asked.get("prefix", ""), asked.get("marker", ""))
            self.answer(200, self.list_of(names, more))
        elif asked.get("comp") == "block":
            begun[key, asked["blockid"]] = body
            self.answer(201)
        elif asked.get("comp") == "blocklist":
            blocks = [e.text for e in xml.etree.ElementTree.fromstring(body)]
            self.server.objects[key] = b"".join(begun.pop((key, block)) for block in blocks)
            self.server.in_parts.append(len(blocks))
            self.answer(201)
        elif asked.get("comp") == "batch":
            self.answer(202, self.removed(body), **{"Content-Type": "multipart/mixed; boundary=it"})
        else:
            self.plainly(key, body)

    def removed(self, body):
        """Removes what a batch names, and answers for each."""
        named = rf"Content-ID: (\d+).*?DELETE /{BUCKET}/(\S+) HTTP"
        parts = re.findall(named, body.decode(), re.S | re.I)
        answer = ""
        for number, key in parts:
            was = self.server.objects.pop(urllib.parse.unquote(key), None)
            status = "202 Accepted" if was is not None else "404 Not Found"
            answer += f"--it\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
            answer += f"HTTP/1.1 {status}\r\n\r\n\r\n"
        return answer + "--it--\r\n"

    def list_of(self, names, more):
        objects = self.server.objects
        each = "".join(
            f"<Blob><Name>{escape(n)}</Name><Properties><Last-Modified>{DATE}</Last-Modified>"
            f"<Content-Length>{len(objects[n])}</Content-Length><Content-Type>x</Content-Type>"
            f"</Properties></Blob>" for n in names)
        marker = f"<NextMarker>{escape(more)}</NextMarker>"
        return f"<EnumerationResults><Blobs>{each}</Blobs>{marker}</EnumerationResults>"


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, kind):
        super().__init__(("127.0.0.1", 0), kind)
        self.objects, self.begun, self.in_parts, self.lock = {}, {}, [], threading.Lock()
        self.counted = 0

    def count(self):
        self.counted += 1
        return self.counted


class Imitated:
    """A store with one bucket, and what it takes to speak to it."""

    def __init__(self, kind):
        self.server = Server(kind)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        scheme, self.env = {
            Google: ("gs", {"GOOGLE_BASE_URL": self.url, "GOOGLE_BEARER_TOKEN": "token-of-the-test"}),
            Azure: ("az", {"AZURE_STORAGE_ENDPOINT": self.url, "AZURE_STORAGE_ACCOUNT_NAME": "account",
                           "AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(b"key of the test").decode()}),
        }[kind]
        self.root = f"{scheme}://{BUCKET}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def objects(self):
        return set(self.server.objects)

    def content(self, key):
        return self.server.objects[key]

    def in_parts(self):
        return self.server.in_parts

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Folder:
    """The same, of a folder."""

    def __init__(self):
        self.env, self.folder = {}, tempfile.mkdtemp()
        self.root = f"file://{self.folder}"

    def objects(self):
        found = (os.path.join(f, n) for f, _, names in os.walk(self.folder) for n in names)
        return {os.path.relpath(path, self.folder) for path in found}

    def content(self, key):
        with open(os.path.join(self.folder, key), "rb") as file:
            return file.read()

    def in_parts(self):
        return None

    def stop(self):
        shutil.rmtree(self.folder)


KINDS = {"gs": lambda: Imitated(Google), "az": lambda: Imitated(Azure), "file": Folder}


@contextlib.contextmanager
def store(kind):
    it = KINDS[kind]()
    it.place = f"{it.root}/runs"
    try:
        yield it
    finally:
        it.stop()


def goes_on(kind):
    """A job goes on from there when its nodes and its folder are gone; nodes sent their images."""
    expected("farm")
    with store(kind) as it:
        options = ["--save-every", "0.2", "--save-to", it.place]
        with Nodes("farm", 3, options, env=it.env, ckpt_every=0.3) as job:
            job.all_checkpointed()
            job.wait_event("stored", count=3)
            place = job.status()["saved_to"]
            assert place["place"] == f"{it.place}/{the_id(job)}" and place["unix_ms"], place
            assert {w["way"] for w in job.status()["saved_ways"]} == {"store"}, job.status()
            lists = [o for o in it.objects() if "/state-" in o]
            assert 1 <= len(lists) <= 3, it.objects()
            job.kill_nodes(0, 1, 2)
            assert job.wait() == 1, job.report()
            from_the_store(job, it, "farm", "--nodes", "2", place=it.place)
            end_of(job, it, "farm")


def long_ones(kind):
    """What is longer than a part is brought in parts, and comes back as it was, also encrypted."""
    contents = {f"node-{n}/{name}": os.urandom(size) for n in range(3)
                for name, size in (("a.img", (n + 1) * PART_BYTES + 9), ("b.log", 7))}
    with stores.keys() as (folder, key, _), store(kind) as it:
        env = {**os.environ, **it.env}
        for name, content in contents.items():
            path = os.path.join(folder, "from", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
        first = os.path.join(folder, "first")
        stores.vault(env, first, "import", "--vault", "rs:2+1", "--from", os.path.join(folder, "from"))
        for seal, name in (([], "plain"), (["--seal", key], "sealed")):
            place = f"{it.root}/{name}"
            stores.vault(env, first, "export", "--to", place, *seal)
            brought = {o for o in it.objects() if o.startswith(name)}
            assert brought == {f"{name}/{n}" for n in [*contents, "export.json"]}, brought
            sealed = {o for o in brought if it.content(o).startswith(b"EYRIESLD")}
            assert sealed == (brought if seal else set()), sealed
            second = os.path.join(folder, name)
            stores.vault(env, second, "import", "--vault", "rs:2+1", "--from", place, *seal)
            stores.vault(env, second, "export", "--to", os.path.join(second, "out"))
            for n, content in contents.items():
                with open(os.path.join(second, "out", n), "rb") as file:
                    assert file.read() == content, n
        assert it.in_parts() in (None, [2, 3, 4, 2, 3, 4]), it.in_parts()
        del_list = f"{it.root}/nothing"
        why = refused(["vault", "import", "--vault", "rs:2+1", "--from", del_list,
                       *(os.path.join(folder, "last", f"n{n}") for n in range(3))], env)
        assert "no whole export" in why, why


def generated():
    for kind in KINDS:
        yield f"a_job_goes_on_from_{kind}", lambda k=kind: goes_on(k)
        yield f"long_objects_in_{kind}", lambda k=kind: long_ones(k)


def told(env, code, place, *texts):
    stores.told(env, code, *texts, options=("--save-every", "1", "--save-to", place))


def test_a_store_that_cannot_be_used_is_told_before_the_job_begins():
    for kind, wrong, hint in (
        ("gs", {"GOOGLE_BEARER_TOKEN": "wrong"}, "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az", {"AZURE_STORAGE_ACCOUNT_NAME": "another"}, "AZURE_STORAGE_ACCOUNT_KEY"),
    ):
        with store(kind) as it:
            told(it.env, 1, it.root.replace(BUCKET, "elsewhere"), "no bucket 'elsewhere'")
            told({**it.env, **wrong}, 1, it.place, "does not accept the keys", hint)
            told({**it.env, **dict.fromkeys(wrong, "")}, 1, it.place, "keys are not known", hint)
            none = [EYRIE, "restart", f"{it.place}/abcd"]
            with tempfile.TemporaryDirectory() as home:
                why = refused(none[1:], {**os.environ, **it.env, "EYRIE_HOME": home})
            assert "has no state of a job" in why, why
        told(it.env, 1, it.place, "cannot be reached")
    with tempfile.NamedTemporaryFile() as file:
        told({}, 1, f"file://{file.name}/x", "Not a directory")
    told({}, 2, "file://here", "file:///FOLDER")


def test_a_service_account_is_read_from_its_file():
    """Its text is what nodes need: they have no such file. Here it says that no token is to be had."""
    with store("gs") as it, tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        account = {"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": True,
                   "gcs_base_url": it.url}
        json.dump(account, file)
        file.flush()
        env = {"GOOGLE_APPLICATION_CREDENTIALS": file.name}
        # It was used: the store asks for more than nothing.
        told(env, 1, it.place, "does not accept the keys")
        told({"GOOGLE_APPLICATION_CREDENTIALS": file.name + ".not"}, 1, it.place, "No such file")
