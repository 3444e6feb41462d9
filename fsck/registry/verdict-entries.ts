import { toBase64 } from '#protocol/bytes';
import { listedFailures, readEntry } from '#protocol/entries';
import { ProtocolError } from '#protocol/errors';
import { LISTED_LEAVES, type VerdictEntry } from '#protocol/schemas/log-entry';
import { parseTime } from '#protocol/time';
import { isSignedVerdict } from '#protocol/state/log-keys';
import { rootFromTiles } from '#protocol/tiles';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import { tileCache, verdictEntriesFrom } from '#sql/log/log';
import { failedOtherwise, verdictsForLeaves } from '#sql/log/verdicts';
import type { RegistryContext } from './context.js';

const PAGE = 1_000;

export interface VerdictEntriesState {
  /** Verdict entries at this leaf index and above are not checked yet. */
  next: number;
  /** The last valid verdict entry. */
  last: Placed | null;
  /** Leaves that verdict entries for the log of `last` list as failed, and that no later entry lists as restored. */
  listed: number[];
}

interface Placed {
  at: number;
  entry: VerdictEntry;
  /** The name of the log for which the entry is signed. */
  origin: string;
}

/**
 * Checks signature, order and root of each verdict entry while the tree grows. `finish` compares the
 * listed leaves with the verifier's rows.
 */
export class VerdictEntries {
  private readonly signed: AsyncGenerator<Placed, null>;
  /** The next entry, checked once the tree has the size in the entry; null after the last entry. */
  private upcoming: Placed | null | undefined;
  private next: number;
  private last: Placed | null;
  private listed: Set<number>;

  constructor(
    private readonly ctx: RegistryContext,
    { next, last, listed }: VerdictEntriesState = { next: 0, last: null, listed: [] },
  ) {
    this.next = next;
    this.last = last;
    this.listed = new Set(listed);
    this.signed = this.readSigned(next);
  }

  get state(): VerdictEntriesState {
    return { next: this.next, last: this.last, listed: [...this.listed] };
  }

  /**
   * Checks the entries about the tree of `size` leaves.
   *
   * @param rootOf computes the root from the leaves; null when unknown
   */
  async checkAt(size: number, rootOf: () => Uint8Array | null): Promise<void> {
    for (;;) {
      if (this.upcoming === undefined) this.upcoming = (await this.signed.next()).value;
      if (this.upcoming === null || this.upcoming.entry.to > size) return;
      await this.check(this.upcoming, size, rootOf);
      this.next = this.upcoming.at + 1;
      this.upcoming = undefined;
    }
  }

  /** Compares the leaves that the entries list with the verifier's rows. */
  async finish(): Promise<void> {
    const { last, listed } = this;
    if (last === null) return;
    // The list is full: later entries list the remaining leaves.
    if (last.entry.failed.length + last.entry.restored.length >= LISTED_LEAVES) return;
    const { sql } = this.ctx;
    const failures = await failedOtherwise(sql, last.entry.to);
    const verdicts = await verdictsForLeaves(sql, [...new Set([...failures, ...listed])]);
    for (const [leaf, { outcome, verifiedAt }] of verdicts) {
      if (verifiedAt >= parseTime(last.entry.time)) continue;
      if (outcome === 'fail' && !listed.has(leaf))
        this.wrong(last.at, `leaf ${leaf} among its failed leaves`, ` failed=${leaf}`);
      if (outcome === 'pass' && listed.has(leaf))
        this.wrong(last.at, `leaf ${leaf} among its restored leaves`, ` restored=${leaf}`);
    }
  }

  private async *readSigned(from: number): AsyncGenerator<Placed, null> {
    const { sql, keys, origins, size } = this.ctx;
    for (let next = from; ;) {
      const rows = await verdictEntriesFrom(sql, next, size, PAGE);
      for (const { leafIndex: at, body } of rows) {
        const entry = readEntry(body);
        if (entry?.type !== 'verdict') continue; // reported as misfiled
        const origin = origins.find((name) =>
          isSignedVerdict(nativeCrypto, name, entry, keys.states, at),
        );
        if (origin === undefined) {
          this.wrong(at, `a signature by an active verifier key for ${origins[0]}`);
        } else if (entry.to > at) this.wrong(at, `a tree of at most ${at} leaves`);
        else yield { at, entry, origin };
      }
      if (rows.length < PAGE) return null;
      next = rows.at(-1)!.leafIndex + 1;
    }
  }

  private async check(
    placed: Placed,
    size: number,
    rootOf: () => Uint8Array | null,
  ): Promise<void> {
    const { at, entry, origin } = placed;
    const root = entry.to === size ? rootOf() : await this.rootBelow(placed);
    if (root !== null && toBase64(root) !== entry.root) {
      this.wrong(at, `the root of its tree of ${entry.to} leaves`);
      return;
    }
    const before = this.last;
    const [own] = this.ctx.origins;
    if (before?.origin === own && origin !== own) {
      this.wrong(at, `a signature for ${own}, as at leaf ${before.at}`);
      return;
    }
    if (before?.origin === origin) this.reportDisorder(before, placed);
    else {
      // Entries of a retired log report nothing about this log.
      this.listed.clear();
      if (entry.previous !== null)
        this.wrong(at, 'no previous verdict entry, because this entry is the first of its log');
    }
    this.listed = listedFailures([entry], this.listed);
    this.last = placed;
  }

  /**
   * The root of a tree smaller than the part already checked: the first verdict entries of a log that continues a
   * retired log cover earlier leaves.
   */
  private async rootBelow({ at, entry }: Placed): Promise<Uint8Array | null> {
    try {
      return await rootFromTiles(nativeSha256, entry.to, tileCache(this.ctx.sql));
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.ctx.findings.unchecked(`the root in the verdict entry at leaf ${at}`);
      return null;
    }
  }

  private reportDisorder(before: Placed, { at, entry }: Placed): void {
    if (entry.previous !== before.at) this.wrong(at, `leaf ${before.at} as previous verdict entry`);
    const isLower =
      entry.key_id === before.entry.key_id && entry.expired_through < before.entry.expired_through;
    if (entry.to < before.entry.to || isLower) {
      const expected = `at least \`to\` and \`expired_through\` of the entry at leaf ${before.at}`;
      this.wrong(at, expected);
    }
  }

  /** @param place suffix that locates the fault in the entry */
  private wrong(at: number, expected: string, place = ''): void {
    const where = `svc.log_entry leaf_index=${at}${place}`;
    this.ctx.findings.add('verdict_entry_wrong', where, expected);
  }
}
