import { readEntry } from '#protocol/entries';
import { PROOF_PARTS, segmentPath } from '#protocol/snapshot/manifest';
import { entriesPath, TILE_WIDTH, tileWidth } from '#protocol/tiles';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import type { ChunkCheckResult, LeafCheckResult } from '../registry/check-leaf.js';
import type { Bodies } from './bodies.js';
import { recordFault } from './check-record.js';
import type { PublishedContext } from './context.js';
import { entriesIn, type PublicLog } from './log.js';
import type { Parts } from './parts.js';
import { readRecord } from './read-record.js';

export interface ProofsState {
  /** Proofs before the position, which the rows must count. */
  proofs: number;
  /** Proofs found by id. */
  found: number;
}

/** Looks up every proof of the public log like a reader, and compares it with the expected record. */
export class ProofWalk {
  readonly state: ProofsState;

  constructor(
    private readonly ctx: PublishedContext,
    private readonly log: PublicLog,
    private readonly parts: Parts,
    private readonly bodies: Bodies,
    state: ProofsState = { proofs: 0, found: 0 },
  ) {
    this.state = { ...state };
  }

  /**
   * @param from a multiple of 256
   * @param results the registry's results for these leaves; null when the registry is skipped
   */
  async step(from: number, to: number, results: ChunkCheckResult | null): Promise<void> {
    if (!this.log.isWhole) {
      this.ctx.findings.unchecked(
        'published proofs: entries of the public log are lost or damaged',
      );
      return;
    }
    const size = this.ctx.opened.manifest.tree_size;
    for (let start = from; start < Math.min(to, size); start += TILE_WIDTH) {
      const index = start / TILE_WIDTH;
      const path = entriesPath(index, tileWidth(0, index, this.log.size));
      const bundle = await this.ctx.files.read(path);
      // The check of the log reported a missing or damaged bundle.
      const entries = bundle === null ? [] : entriesIn(bundle);
      for (const [place, bytes] of entries.entries()) {
        const leafIndex = start + place;
        const entry = leafIndex < Math.min(to, size) ? readEntry(bytes) : null;
        if (entry?.type !== 'proof') continue;
        await this.check(entry, leafIndex, results?.get(leafIndex) ?? null);
        this.state.proofs += 1;
      }
    }
  }

  private async check(
    entry: ProofEntry,
    leafIndex: number,
    result: LeafCheckResult | null,
  ): Promise<void> {
    const { findings, opened } = this.ctx;
    const lookup = await this.parts.find(PROOF_PARTS, entry.proof_id);
    const leaf = `id=${entry.proof_id} leaf_index=${leafIndex}`;
    if (lookup.state === 'unknown') return;
    if (lookup.state === 'absent') {
      findings.add('record_missing', `index parts of kind proof, ${leaf}`, 'its row');
      return;
    }
    this.state.found += 1;
    const { row } = lookup;
    const where = `${segmentPath(row.file.name)} at ${row.offset}, ${leaf}`;
    if (row.leafIndex !== leafIndex || row.proofNumber !== this.state.proofs) {
      const expected = `leaf ${leafIndex} and ${this.state.proofs} proofs before it, found ${row.leafIndex} and ${row.proofNumber}`;
      findings.add('row_differs', `${segmentPath(row.pin.sha256)} ${leaf}`, expected);
    }
    const bytes = await this.bodies.record(row);
    if (bytes === null) return;
    const record = readRecord(bytes, entry.proof_id);
    if (record === null) {
      findings.add('record_malformed', where, 'the record of that proof');
      return;
    }
    const { manifest, validUntil, checkpoint } = opened;
    const fault = recordFault({
      entry,
      leafIndex,
      record,
      result,
      revocations: (this.log.revocations.get(entry.proof_id) ?? []).filter(
        (one) => one.leafIndex < manifest.tree_size,
      ),
      scope: {
        size: manifest.tree_size,
        verdictCursor: manifest.verdict_cursor,
        verifierCheckedAt: validUntil - this.ctx.snapshotTtlMs,
      },
      logOrigin: checkpoint.origin,
    });
    if (fault !== null) findings.add(fault.code, where, fault.expected);
  }
}
