"""What Prometheus's own tools say of our metrics, alerts and dashboard."""

import os
import shutil
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EYRIE = os.path.join(ROOT, "build", "bin", "eyrie")
RULES = os.path.join(ROOT, "packaging", "prometheus")


def promtool(*words, **more):
    found = shutil.which("promtool")
    assert found, "promtool is missing: apt-get install prometheus (or ALL=1 scripts/setup --test)"
    done = subprocess.run([found, *words], capture_output=True, text=True, timeout=60, check=False, **more)
    assert done.returncode == 0, f"promtool {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_promtool_takes_the_alerts(folder):
    assert "SUCCESS: 7 rules found" in promtool("check", "rules", os.path.join(RULES, "eyrie.rules.yml"))
    said = promtool("test", "rules", "eyrie.rules.test.yml", cwd=RULES)
    assert "SUCCESS" in said and "FAILED" not in said, said


def test_promtool_takes_the_metrics(folder):
    """Of a job on one node, and of one over nodes of two clusters."""
    for number, options in enumerate((["-n", "2"], ["-n", "2", "--nodes", "2", "--clusters", "2", "--vault", "rs:1+1"])):
        file = os.path.join(folder, f"{number}.prom")
        with tempfile.TemporaryDirectory(prefix="eyrie-test-") as home:
            command = [EYRIE, "run", "-q", *options, "--metrics-file", file, "--", "sleep", "0.5"]
            subprocess.run(command, env={**os.environ, "EYRIE_HOME": home}, check=True, timeout=60)
        with open(file) as text:
            assert promtool("check", "metrics", stdin=text) == "", file
