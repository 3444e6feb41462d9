import { equalBytes, toHex } from '#protocol/bytes';
import { readEntry } from '#protocol/entries';
import { ProtocolError } from '#protocol/errors';
import { findValue, type MapValue, type PageId, StoredPage } from '#protocol/map/page';
import { MemoryPages, pageName } from '#protocol/monitor/map-store';
import { Rebuild } from '#protocol/monitor/rebuild';
import { SignedTree } from '#protocol/monitor/signed-tree';
import { findProof } from '#protocol/monitor/watch';
import { pagePath, type OpenedLocation } from '#protocol/snapshot/location';
import type { LogContext } from '#protocol/state/log-keys';
import { EMPTY_LOG } from '#protocol/state/log-state';
import { reduce, type LogReader } from '#protocol/state/reduce';
import { ARTIFACT_KINDS, isProofOnly } from '#protocol/status';
import { TILE_WIDTH } from '#protocol/tiles';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import type { LeafCheckResult } from '../registry/check-leaf.js';
import type { SnapshotContext } from './heads.js';
import type { SignedHead } from './log.js';

/** The map of public records, rebuilt from the entries of the public log. */
export class RebuiltMap {
  private readonly pages = new MemoryPages();
  private readonly rebuild: Rebuild;
  private readonly tree: SignedTree;
  private readonly log: LogContext;
  private ofEndedLogs: ReadonlySet<number> = new Set();
  /** Parsed pages of the rebuilt map, by their bytes. */
  private readonly parsed = new WeakMap<Uint8Array, StoredPage>();

  constructor(
    private readonly ctx: SnapshotContext,
    private readonly head: SignedHead,
    private readonly endedOrigins: readonly string[] = [],
  ) {
    const origin = ctx.log[0].name;
    this.log = { ...nativeCrypto, origin, shard: 0 };
    this.rebuild = new Rebuild(this.log, this.pages);
    this.tree = new SignedTree(
      nativeSha256,
      { origin, size: head.size, root: head.root },
      ctx.files,
    );
  }

  /**
   * Rebuilds the map. Compares its roots with every snapshot entry, and its pages with the pages of
   * the published map.
   *
   * @returns whether all entries could be read
   */
  async check(opened: OpenedLocation | null, step: (leaves: number) => void): Promise<boolean> {
    try {
      const { size } = this.head;
      this.ofEndedLogs = await entriesOfEndedLogs(this.log, this.endedOrigins, this.tree);
      if (opened !== null) {
        await this.stepTo(opened.snapshot.logs[0]!.size, step);
        await this.checkPages(opened);
      }
      await this.stepTo(size, step);
      return true;
    } catch (error) {
      if (!(error instanceof ProtocolError) || error.code !== 'malformed_tile') throw error;
      this.ctx.findings.unchecked(`published records: ${error.message}`);
      return false;
    }
  }

  async compare(result: LeafCheckResult): Promise<void> {
    const { leafIndex, proofId, decision, ends, verifies, isVoided } = result;
    if (proofId === null || leafIndex >= this.rebuild.log.state.size) return;
    const found = await findProof(nativeSha256, (key) => this.find(key), proofId);
    const where = `public log, id=${proofId} leaf_index=${leafIndex}`;
    const { findings } = this.ctx;
    if (found?.proof.leafIndex !== leafIndex) {
      findings.add('record_differs', where, 'a record with this leaf index');
      return;
    }
    const { proof, key } = found;
    if (proof.verdict === 'pass' && !proof.isGone && verifies === false && !isVoided) {
      findings.add('record_asserts', where, 'not a pass, because the proof does not verify');
    }
    if (decision === null) return;
    const facts = {
      effect: decision.effect,
      environment: decision.environment,
      keyId: decision.keyId,
      artifacts: !isProofOnly(decision),
      ends: ARTIFACT_KINDS.map((kind) => ends.find((end) => end.kind === kind)?.expiresAt ?? null),
    };
    const published = {
      effect: proof.effect,
      environment: proof.isLive ? 'live' : 'sandbox',
      keyId: key === null ? decision.keyId : key.keyId,
      artifacts: proof.hasArtifacts,
      ends: proof.ends,
    };
    if (JSON.stringify(facts) === JSON.stringify(published)) return;
    const expected = `${JSON.stringify(facts)} as in the AEP, found ${JSON.stringify(published)}`;
    findings.add('record_differs', where, expected);
  }

  /** Decodes only the item that it returns; {@link Rebuild.find} decodes and hashes every item of each page. */
  private find(key: Uint8Array): Promise<MapValue | null> {
    const { map } = this.rebuild.log;
    const head = map && this.pageOf(map);
    return Promise.resolve(findValue(head, key, (page, at) => this.pageOf(page.linkAt(at))));
  }

  private pageOf(page: PageId): StoredPage {
    const bytes = this.pages.pages.get(pageName(page));
    if (bytes === undefined) throw new Error(`the rebuilt map lacks page ${pageName(page)}`);
    const known = this.parsed.get(bytes) ?? new StoredPage(page.level, bytes);
    this.parsed.set(bytes, known);
    return known;
  }

  private async stepTo(end: number, step: (leaves: number) => void): Promise<void> {
    const report: Parameters<Rebuild['step']>[2] = ({ code, where, detail }, ignored) => {
      if (ignored !== undefined && this.ofEndedLogs.has(ignored)) return;
      if (code === 'map_root_differs' || code === 'map_root_unchecked' || code === 'entry_ignored')
        this.ctx.findings.add(code, where, detail);
    };
    while (await this.rebuild.step(this.tree, null, report, end)) step(this.rebuild.log.state.size);
  }

  /** The pages of a map are a function of its records, so each page must be published. */
  private async checkPages({ location }: OpenedLocation): Promise<void> {
    const { map } = this.rebuild.log;
    const { files, findings } = this.ctx;
    const digest = map === null ? null : toHex(map.digest);
    if (location.map?.digest !== digest && location.map !== digest) {
      const expected = `the page ${String(digest)}, found ${String(location.map?.digest)}`;
      findings.add('map_page_altered', 'lookup/snapshot', expected);
    }
    for (const bytes of this.pages.pages.values()) {
      const path = pagePath({ digest: nativeSha256(bytes) });
      const stored = await files.read(path);
      if (stored === null) findings.add('map_page_missing', path, `${bytes.length} bytes`);
      else if (!equalBytes(stored, bytes)) {
        findings.add('map_page_altered', path, 'bytes whose SHA-256 is the name of the file');
      }
    }
  }
}

/**
 * The indexes of the verdict, snapshot and log key entries that are valid only for one of the retired
 * logs, whose leaves this log continues. After the first verdict or snapshot entry that is valid for
 * this log, no entry is valid for a retired log.
 */
async function entriesOfEndedLogs(
  own: LogContext,
  endedOrigins: readonly string[],
  tree: SignedTree,
): Promise<Set<number>> {
  const found = new Set<number>();
  if (endedOrigins.length === 0) return found;
  // Reads no map, because the map does not affect which of these entries are valid.
  const reader: LogReader = {
    values: (keys) => Promise.resolve(keys.map(() => null)),
    entries: (from, to) => tree.entriesBetween(from, to),
    rootAt: (size) => tree.rootAt(size),
  };
  const logs = [own, ...endedOrigins.map((origin) => ({ ...own, origin }))];
  let states = logs.map(() => EMPTY_LOG);
  for (let first = 0; first < tree.head.size; first += TILE_WIDTH) {
    const entries = await tree.entries(first / TILE_WIDTH);
    const reduced = await Promise.all(
      logs.map((log, at) => reduce(log, states[at]!, entries, reader)),
    );
    states = reduced.map(({ state }) => state);
    const [ownIgnored, ...ignored] = reduced.map((result) => new Set(result.ignored));
    for (const [offset, bytes] of entries.entries()) {
      const type = readEntry(bytes)?.type;
      if (type !== 'verdict' && type !== 'snapshot' && type !== 'key') continue;
      const index = first + offset;
      if (ownIgnored!.has(index)) {
        if (ignored.some((one) => !one.has(index))) found.add(index);
      } else if (type !== 'key') return found;
    }
  }
  return found;
}
