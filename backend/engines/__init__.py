"""LLM engines of the model `llm`. Every module but `base` loads torch; hence what must stand before that is here."""

import os

# OpenMP's threads spin while they wait for each other. Where another process wants the core, two threads on two
# cores so take 5 to 10 times as long for a decoding step of the embedded model (measured; asleep they take no longer
# than spinning ones on an idle machine).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# A missing file is an error, not a download; and progress bars are no log lines.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
