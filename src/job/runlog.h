/* SPDX-License-Identifier: Apache-2.0
 *
 * runlog: DIR/run.log, which receives every line that is logged while it is open.
 *
 * Its first record of a run is one line of JSON (version, host, pid, settings, hashes), then one
 * line a log line: "2026-11-29T21:52:30.123Z info text". Runs follow one another in the file. It
 * never fails a run: what cannot be written (no space, no permission) is left out. */
#ifndef HR_JOB_RUNLOG_H
#define HR_JOB_RUNLOG_H

struct hr_runlog;

/* Takes the log's sink (one runlog at a time). */
struct hr_runlog *hr_runlog_create(void);
/* From now on DIR/run.log gets the lines too; `first_json`: one line of JSON without newline. A
 * file that cannot be opened is a warning. */
void hr_runlog_add(struct hr_runlog *log, const char *dir, const char *first_json);
void hr_runlog_destroy(struct hr_runlog **log);

#endif
