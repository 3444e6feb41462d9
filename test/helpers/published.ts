import { fromUtf8, toHex, utf8 } from '#protocol/bytes';
import { parseVkey } from '#protocol/note';
import { facadeSchema, type Facade } from '#protocol/schemas/facade';
import { responseHead } from '#protocol/snapshot/head';
import { PACKAGE_PARTS, SHARE_PARTS, type Manifest } from '#protocol/snapshot/manifest';
import { recordBody } from '#protocol/snapshot/record';
import { openShare, shareIndexId, tokenHash, type Share } from '#protocol/snapshot/share';
import { SnapshotDirectory } from '#publisher/store/directory';
import { PublishedIndex } from '#publisher/store/index-parts';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';

/** What a snapshot directory says of tokens and packages, read as whoever has the vkeys would. */
export class PublishedGrants {
  private readonly directory: SnapshotDirectory;
  private readonly index: PublishedIndex;

  constructor(where: { directory: string; logVkey: string; snapshotVkey: string }) {
    this.directory = new SnapshotDirectory(where.directory, nativeSha256, nativeVerify, {
      log: [parseVkey(where.logVkey)],
      snapshot: [parseVkey(where.snapshotVkey)],
    });
    this.index = new PublishedIndex(nativeSha256, this.directory);
  }

  async manifest(): Promise<Manifest> {
    const published = await this.directory.manifest();
    if (published === null) throw new Error('nothing is published');
    return published.opened.manifest;
  }

  /** The number of the last change that the snapshot has taken up; 0 when there is none. */
  async bookmark(): Promise<number> {
    const { index_parts: pins } = await this.manifest();
    const kinds = [SHARE_PARTS, PACKAGE_PARTS];
    return Math.max(
      0,
      ...pins.filter(({ kind }) => kinds.includes(kind)).map((pin) => pin.last_leaf),
    );
  }

  async place(kind: string, id: string) {
    return this.index.find((await this.manifest()).index_parts, id, kind);
  }

  /** The record of a token; null when there is none. */
  async share(token: string): Promise<Share | null> {
    const hash = tokenHash(nativeSha256, token);
    const found = await this.place(SHARE_PARTS, toHex(shareIndexId(hash)));
    return found && openShare(found.record, hash);
  }

  /** What the facade answers for a package; null when it does not resolve. */
  async package(packageId: string): Promise<Facade | null> {
    const id = packageId.slice('pkg_'.length);
    const found = await this.place(PACKAGE_PARTS, id);
    const body = found && recordBody(found.record, Buffer.from(id, 'hex'), 'trust');
    if (body === null) return null;
    const head = responseHead('trust', packageId, 'package_id');
    const text = head + fromUtf8(body.part) + fromUtf8(body.tail);
    const facade: unknown = JSON.parse(text);
    const parsed = facadeSchema.parse(facade);
    if (utf8(JSON.stringify(parsed)).length !== utf8(text).length)
      throw new Error('unknown members');
    return parsed;
  }

  async statusOf(packageId: string): Promise<string | null> {
    return (await this.package(packageId))?.verification.verification_status ?? null;
  }
}
