import { decodeFileLine, FILE_BYTES } from '#protocol/snapshot/index-part';
import type { PublishedContext } from './context.js';
import type { Parts } from './parts.js';

const FOLDER = 'lookup/segments';
/** Replaced files are kept for this long, because readers may use an older manifest. */
const KEPT_MS = 60 * 60 * 1000;

/** The first 52 bits of a name, so that each file takes eight bytes. */
const keyOf = (name: string): number => parseInt(name.slice(0, 13), 16);

/** Counts files that the manifest does not refer to, recent ones separately. */
export async function checkOrphans(ctx: PublishedContext, parts: Parts): Promise<void> {
  const { files, findings, opened } = ctx;
  const listed = files.list(FOLDER);
  if (listed === null) {
    findings.skip(`files that nothing refers to: ${files.where} does not list`);
    return;
  }
  const referred = new Set([keyOf(opened.manifest.keys.sha256)]);
  for (const pin of parts.pins) {
    referred.add(keyOf(pin.sha256));
    const rows = await parts.rows(pin);
    if (rows === null) {
      findings.unchecked('files that nothing refers to: an index part is damaged');
      return;
    }
    for (let at = 0; at < rows.files.length; at += FILE_BYTES) {
      referred.add(keyOf(decodeFileLine(rows.files.subarray(at, at + FILE_BYTES)).name));
    }
  }
  let [young, old] = [0, 0];
  for await (const { name, writtenAt } of listed) {
    if (/^[0-9a-f]{64}$/.test(name) && referred.has(keyOf(name))) continue;
    if (ctx.now() - writtenAt < KEPT_MS) young += 1;
    else old += 1;
  }
  if (young > 0)
    findings.add(
      'orphans_young',
      FOLDER,
      `files that the manifest leads to, found ${young} others of the last hour`,
    );
  if (old > 0)
    findings.add('orphans', FOLDER, `files that the manifest leads to, found ${old} older others`);
}
