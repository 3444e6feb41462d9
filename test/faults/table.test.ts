import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { WRITES_WITHOUT_SCENARIO, WRITE_POINTS } from './scenarios/write-points.js';

/** A statement that changes the registry, in lower case, up to the first value in it. */
const WRITES =
  /\b(?:insert into|update|delete from) (?:svc|public)\.[^`$]*|select svc\.(?:append_\w+|adopt_entries|\w+_adoption|end_log|record_heartbeat|record_maintenance|record_fsck|store_admissions|create_api_key|revoke_api_key|\w+_overlay|\w+_approver)\(/g;

function writesIn(file: string): string[] {
  const text = readFileSync(join(packageRoot, 'sql', file), 'utf8');
  return text.match(WRITES)?.map((one) => one.toLowerCase().replaceAll(/\s+/g, ' ')) ?? [];
}

const LISTED = [
  ...WRITE_POINTS.flatMap(({ files, has, also = [] }) =>
    files.map((file) => ({ file, statements: [...has, ...also] })),
  ),
  ...WRITES_WITHOUT_SCENARIO.map(([file, statements]) => ({ file, statements })),
];
const FILES = readdirSync(join(packageRoot, 'sql'), { recursive: true, encoding: 'utf8' }).filter(
  (name) => name.endsWith('.ts'),
);

/** Whether one text begins with the other, because each text is only the beginning of a statement. */
const isOf = (written: string, listed: string): boolean =>
  written.startsWith(listed.trimEnd()) || listed.startsWith(written);

describe('fault table', () => {
  it('has a scenario for each write to the registry, or a reason for its absence', () => {
    const forgotten = FILES.flatMap((file) =>
      writesIn(file)
        .filter(
          (written) =>
            !LISTED.some(
              (entry) => entry.file === file && entry.statements.some((one) => isOf(written, one)),
            ),
        )
        .map((written) => `${file}: ${written}`),
    );
    expect(FILES).not.toEqual([]);
    expect(forgotten).toEqual([]);
  });

  it('names only writes that exist in the source', () => {
    const listed = [
      ...WRITE_POINTS.map(({ files, has, also = [] }) => ({ files, all: [...has, ...also] })),
      ...WRITES_WITHOUT_SCENARIO.map(([file, all]) => ({ files: [file], all })),
    ];
    const gone = listed.flatMap(({ files, all }) => {
      const written = files.flatMap(writesIn);
      return all.filter((one) => !written.some((there) => isOf(there, one)));
    });
    expect(gone).toEqual([]);
  });
});
