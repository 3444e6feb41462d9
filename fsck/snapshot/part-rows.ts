import { readEntry } from '#protocol/entries';
import type { KeyedEntry } from '#protocol/keys';
import { decodeFileLine, FILE_BYTES, type IndexRows } from '#protocol/snapshot/index-part';
import { PROOF_PARTS, segmentPath, type IndexPartPin } from '#protocol/snapshot/manifest';
import { entriesPath, TILE_WIDTH, tileWidth } from '#protocol/tiles';
import { type Bodies, rowAt, type Parts } from './parts.js';
import type { PublishedContext } from './source.js';
import { entriesIn, type PublicLog } from './log.js';
import { readKeysFile } from './manifest.js';

/**
 * Checks the parts of the index that lookups do not reach: every segment and file, records shadowed
 * by newer ones, and rows without a proof.
 *
 * @param found the number of proofs found by id, each once
 * @param appended the key entries of the registry; null when only the snapshot is checked
 * @returns the number of current rows of each kind
 */
export async function checkParts(
  ctx: PublishedContext,
  parts: Parts,
  bodies: Bodies,
  log: PublicLog,
  found: number,
  appended: readonly KeyedEntry[] | null,
): Promise<Map<string, number>> {
  const current = new Map<string, number>();
  let isWhole = log.isWhole;
  for (const pin of parts.pins) {
    const rows = await parts.rows(pin);
    if (rows === null) {
      isWhole = false;
      continue;
    }
    const shadowed = await shadowedFiles(parts, pin, rows);
    current.set(pin.kind, (current.get(pin.kind) ?? 0) + rows.high.length - shadowed.rows);
    for (let number = 0; number * FILE_BYTES < rows.files.length; number++) {
      // The lookups of all proofs have already read the files without shadowed rows.
      if (log.isWhole && pin.kind === PROOF_PARTS && !shadowed.files.has(number)) continue;
      const line = decodeFileLine(
        rows.files.subarray(number * FILE_BYTES, (number + 1) * FILE_BYTES),
      );
      await bodies.file(line.name, line.bytes);
    }
  }
  if (isWhole && (current.get(PROOF_PARTS) ?? 0) !== found) {
    await reportUnknownRows(ctx, parts, log.size);
  }
  if (!log.isWhole) return current;
  const { manifest } = ctx.opened;
  if (manifest.proofs !== log.proofs) {
    const expected = `${log.proofs} proofs, found ${manifest.proofs}`;
    ctx.findings.add('manifest_differs', 'lookup/manifest', expected);
  }
  await readKeysFile(ctx, log, appended);
  return current;
}

/** Rows shadowed by newer segments, and the files with their records. */
async function shadowedFiles(
  parts: Parts,
  pin: IndexPartPin,
  rows: IndexRows,
): Promise<{ rows: number; files: Set<number> }> {
  const files = new Set<number>();
  const all = parts.ofKind(pin.kind);
  let count = 0;
  if (all.at(-1) === pin) return { rows: 0, files };
  const table = new Map<string, number>();
  for (let number = 0; number * FILE_BYTES < rows.files.length; number++) {
    const at = number * FILE_BYTES;
    table.set(decodeFileLine(rows.files.subarray(at, at + FILE_BYTES)).name, number);
  }
  for (let i = 0; i < rows.high.length; i++) {
    const row = rowAt(rows, i, pin);
    if ((await parts.find(pin.kind, row.id, pin)).state !== 'found') continue;
    count += 1;
    files.add(table.get(row.file.name) ?? 0);
  }
  return { rows: count, files };
}

/** There are more rows than proofs: reports the rows without a proof in the log. */
async function reportUnknownRows(
  ctx: PublishedContext,
  parts: Parts,
  logSize: number,
): Promise<void> {
  const bundle = { index: -1, entries: [] as Uint8Array[] };
  for (const pin of parts.ofKind(PROOF_PARTS)) {
    const rows = await parts.rows(pin);
    for (let i = 0; rows !== null && i < rows.high.length; i++) {
      const row = rowAt(rows, i, pin);
      const index = Math.floor(row.leafIndex / TILE_WIDTH);
      if (bundle.index !== index) {
        const width = tileWidth(0, index, logSize);
        const bytes = width === 0 ? null : await ctx.files.read(entriesPath(index, width));
        Object.assign(bundle, { index, entries: bytes === null ? [] : entriesIn(bytes) });
      }
      const entry = readEntry(bundle.entries[row.leafIndex % TILE_WIDTH] ?? new Uint8Array());
      if (entry?.type === 'proof' && entry.proof_id === row.id) continue;
      const where = `${segmentPath(pin.sha256)} id=${row.id}`;
      ctx.findings.add('record_unknown', where, `a proof of that id at leaf ${row.leafIndex}`);
    }
  }
}
