import { utf8 } from '#protocol/bytes';
import { findCosignature } from '#protocol/cosignature';
import { COSIGNED_PATH } from '#protocol/snapshot/location';
import { consistencyFromTiles, tilePath, type TileReader } from '#protocol/tiles';
import { checkQuorum, type PolicyWitness, type TlogPolicy } from '#protocol/tlog-policy';
import { formatAddCheckpoint, TLOG_SIZE_TYPE } from '#protocol/tlog-witness';
import type { Clock } from '#runtime/clock';
import { timeoutSignal } from '#runtime/concurrency';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { readAtMost } from '#runtime/http/read-at-most';
import { logRarely, type Logger } from '#runtime/process/log';
import { LeaseLostError } from './errors.js';
import type { Leadership } from './registry/lease.js';
import type { SnapshotReader, SnapshotWriter } from './store/published-files.js';

/** Time limit of one request. Collecting cosignatures takes at least this long when a witness does not answer. */
const TIMEOUT_MS = 2_000;
const MAX_ANSWER = 16 * 1024;
/**
 * Interval at which an unchanged checkpoint is cosigned again, so that its cosignatures have recent timestamps.
 */
const REFRESH_MS = 60_000;

const SIGNATURE_LINES = /^(?:\u2014 \S+ \S+\n)+$/u;

export interface CosignerOptions {
  policy: TlogPolicy;
  reader: SnapshotReader;
  writer: SnapshotWriter;
  leadership: Leadership;
  monotonic: Clock;
  log: Logger;
  /** Called with the outcome of each request, by the witness's name in the policy. */
  onAnswer?: ((witness: string, outcome: 'cosigned' | 'failed') => void) | undefined;
}

interface Asked extends PolicyWitness {
  url: string;
  /** Size of the latest tree that the witness cosigned, as far as this process knows. */
  size: number;
  problem: string | null;
}

/**
 * Collects the cosignatures of a policy's witnesses (C2SP tlog-witness) while publish cycles
 * continue. Once the cosignatures meet the quorum, publishes the cosigned checkpoint in a second
 * file: the newest checkpoint is public at once, and a cosigned checkpoint stays until the next
 * quorum.
 */
export class Cosigner {
  private readonly witnesses: Asked[];
  private round: Promise<void> | null = null;
  private writing: Promise<void> = Promise.resolve();
  private stopping = new AbortController();
  private finished: { note: string; at: number } | null = null;
  private quorumAt: number;

  constructor(private readonly options: CosignerOptions) {
    this.witnesses = options.policy.witnesses.flatMap((witness) =>
      witness.url === null
        ? []
        : [{ ...witness, url: witness.url.replace(/\/+$/, ''), size: 0, problem: null }],
    );
    this.quorumAt = options.monotonic.now();
  }

  /** Milliseconds since a checkpoint with a quorum was published, or since the start. */
  get quorumAgeMs(): number {
    return this.options.monotonic.now() - this.quorumAt;
  }

  /** Starts to collect cosignatures of a published checkpoint, unless a collection is running. Never throws. */
  submit(note: string, size: number): void {
    if (this.round !== null || this.isFinished(note)) return;
    // One per round: Node keeps a reference to each signal derived from a living one.
    this.stopping = new AbortController();
    this.round = this.run(note, size).finally(() => {
      this.round = null;
    });
  }

  /** Aborts the running collection, and waits for its end. */
  async stop(): Promise<void> {
    this.stopping.abort();
    await this.round;
  }

  private isFinished(note: string): boolean {
    const { finished } = this;
    return finished?.note === note && this.options.monotonic.now() - finished.at < REFRESH_MS;
  }

  private async run(note: string, size: number): Promise<void> {
    const { policy, onAnswer } = this.options;
    const { signal } = this.stopping;
    const lines = new Map<Asked, string>();
    this.finished = null;
    await Promise.all(
      this.witnesses.map(async (witness) => {
        try {
          lines.set(witness, await this.cosignatureOf(witness, note, size, signal));
        } catch (error) {
          if (!signal.aborted) this.failed(witness, error);
          return;
        }
        onAnswer?.(witness.name, 'cosigned');
        if (witness.problem !== null) {
          this.options.log.info({ witness: witness.name }, 'witness: cosigns checkpoints again');
        }
        witness.problem = null;
        const cosigned = note + this.witnesses.map((one) => lines.get(one) ?? '').join('');
        if (!checkQuorum(cosigned, policy, nativeVerify).isMet || signal.aborted) return;
        await this.publish(cosigned, note, size);
      }),
    );
  }

  /** Publishes a note with its cosignatures; one write at a time, in the order of the calls. */
  private publish(cosigned: string, note: string, size: number): Promise<void> {
    const { reader, writer, leadership, monotonic, log } = this.options;
    const write = async (): Promise<void> => {
      await leadership.require();
      const bytes = await reader.read(COSIGNED_PATH);
      const present = await reader.checkpoint(COSIGNED_PATH).catch(() => null);
      // A suspended publisher must not replace a cosigned checkpoint that its successor published.
      if (present !== null && present.checkpoint.size > size) return;
      await writer.replace(COSIGNED_PATH, utf8(cosigned), bytes);
      this.quorumAt = monotonic.now();
      this.finished = { note, at: this.quorumAt };
    };
    this.writing = this.writing.then(write).catch((error: unknown) => {
      if (error instanceof LeaseLostError) return;
      const text = 'witness: the cosigned checkpoint could not be published';
      logRarely(log, 'error', { err: error }, text);
    });
    return this.writing;
  }

  /** Logs a problem of a witness, unless its previous request failed with the same problem. */
  private failed(witness: Asked, error: unknown): void {
    const { log, onAnswer } = this.options;
    onAnswer?.(witness.name, 'failed');
    const problem = error instanceof Error ? error.message : String(error);
    if (problem !== witness.problem) {
      log.warn({ err: error, witness: witness.name }, 'witness: the checkpoint was not cosigned');
    }
    witness.problem = problem;
  }

  /**
   * Requests a cosignature. If the witness reports that it last cosigned a tree size other than `witness.size`, repeats
   * the request with that size.
   */
  private async cosignatureOf(
    witness: Asked,
    note: string,
    size: number,
    stop: AbortSignal,
  ): Promise<string> {
    let answer = await this.send(witness, note, size, stop);
    if (answer.status === 409 && answer.type === TLOG_SIZE_TYPE) {
      const [, digits] = /^(0|[1-9][0-9]{0,15})\n$/.exec(answer.body) ?? [];
      if (digits === undefined) throw new Error('the witness answered 409 without a size');
      if (Number(digits) > size)
        throw new Error(`the witness cosigned ${digits} leaves, above ${size}`);
      witness.size = Number(digits);
      answer = await this.send(witness, note, size, stop);
    }
    const { status, body } = answer;
    if (status !== 200) {
      throw new Error(`the witness answered ${status}: ${body.slice(0, 200).trim()}`);
    }
    // Accepts only signature lines: other lines could move the end of the note's text.
    const lines = SIGNATURE_LINES.test(body) ? body : '';
    const found = findCosignature(note + lines, witness.vkey, nativeVerify);
    if (found === null) throw new Error('the answer has no cosignature by the key in the policy');
    witness.size = size;
    return found.line;
  }

  private readonly readTile: TileReader = async (level, index, width) => {
    const path = tilePath(level, index, width);
    const tile = await this.options.reader.read(path);
    if (tile === null) throw new Error(`${path} is missing`);
    return tile;
  };

  private async send({ url, size: oldSize }: Asked, note: string, size: number, stop: AbortSignal) {
    const proof = await consistencyFromTiles(nativeSha256, oldSize, size, this.readTile);
    const response = await fetch(`${url}/add-checkpoint`, {
      method: 'POST',
      body: formatAddCheckpoint({ oldSize, proof, note }),
      redirect: 'error',
      signal: AbortSignal.any([stop, timeoutSignal(TIMEOUT_MS)]),
    });
    const body = (await readAtMost(response.body, MAX_ANSWER)).toString();
    return { status: response.status, type: response.headers.get('content-type'), body };
  }
}
