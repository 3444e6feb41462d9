import { equalBytes, toHex } from '#protocol/bytes';
import { RECORD_DIGEST_BYTES } from '#protocol/snapshot/index-part';
import { segmentPath } from '#protocol/snapshot/manifest';
import { nativeSha256 } from '#runtime/crypto/node';
import { ByteCache } from '#runtime/process/byte-cache';
import type { SnapshotContext } from './context.js';
import type { IndexedRow } from './parts.js';

const CACHED_BYTES = 96 * 1024 * 1024;

/** The body files; each is checked against its name on first use. */
export class Bodies {
  private readonly cache = new ByteCache<{ bytes: Uint8Array; isRight: boolean }>(CACHED_BYTES);
  private readonly reported = new Set<string>();

  constructor(private readonly ctx: Pick<SnapshotContext, 'files' | 'findings'>) {}

  /** Reads and checks a file; null when missing. Reports a fault once. */
  async file(
    name: string,
    length: number,
  ): Promise<{ bytes: Uint8Array; isRight: boolean } | null> {
    const known = this.cache.get(name);
    if (known !== undefined) return known;
    const path = segmentPath(name);
    const bytes = await this.ctx.files.read(path);
    if (bytes === null) {
      this.report(name, 'segment_missing', `a bodies file of ${length} bytes`);
      return null;
    }
    const isRight = bytes.length === length && toHex(nativeSha256(bytes)) === name;
    if (!isRight) {
      const found = `found ${bytes.length} bytes`;
      this.report(name, 'segment_altered', `${length} bytes of that SHA-256, ${found}`);
    }
    const file = { bytes, isRight };
    this.cache.put(name, file, bytes.length);
    return file;
  }

  /** The record of a row; null when unreadable, which is reported for its file or the row. */
  async record(row: IndexedRow): Promise<Uint8Array | null> {
    const { file, offset, length, digest } = row;
    const found = await this.file(file.name, file.bytes);
    if (found === null) return null;
    const record = found.bytes.subarray(offset, offset + length);
    if (equalBytes(nativeSha256(record).subarray(0, RECORD_DIGEST_BYTES), digest)) return record;
    if (found.isRight) {
      const where = `${segmentPath(row.pin.sha256)} id=${row.id}`;
      const place = `${segmentPath(file.name)} at ${offset}`;
      this.ctx.findings.add('row_differs', where, `the digest of the record in ${place}`);
    }
    return null;
  }

  private report(
    name: string,
    code: 'segment_missing' | 'segment_altered',
    expected: string,
  ): void {
    if (this.reported.has(name)) return;
    this.reported.add(name);
    this.ctx.findings.add(code, segmentPath(name), expected);
  }
}
