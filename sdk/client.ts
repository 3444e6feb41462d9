import { admitHttp, executeIntentHttp, followAdmissionHttp } from './engine/admission.js';
import { readApprovalRequest, submitApproval, waitForApproval } from './engine/approvals.js';
import { listApproversHttp, registerApproverHttp, retireApproverHttp } from './engine/approvers.js';
import { admitBatchHttp, followBatchHttp, listBatchesHttp, readBatchHttp } from './engine/batch.js';
import { createApiKeyHttp, listApiKeysHttp, revokeApiKeyHttp } from './engine/keys.js';
import {
  createPackageHttp,
  createShareTokenHttp,
  listPackagesHttp,
  listShareTokensHttp,
  readPackageHttp,
  readRevocationHttp,
  revokeArtifactHttp,
  revokeShareTokenHttp,
} from './engine/lifecycle.js';
import {
  activateOverlayHttp,
  deactivateOverlayHttp,
  listOverlaysHttp,
  storeOverlayHttp,
  testOverlayHttp,
} from './engine/overlays.js';
import {
  exportProofHttp,
  exportRunHttp,
  getProofInclusionHttp,
  listProofsHttp,
  readProofHttp,
  readRunHttp,
  replayProofHttp,
  verifyProofHttp,
  type ExportFormat,
  type ExportFormats,
  type InclusionFormat,
  type InclusionFormats,
} from './engine/proofs.js';
import { readReceiptEvidenceHttp } from './engine/receipt-evidence.js';
import type { RequestHashEnvelope } from './engine/engine.js';
import { SdkError } from './errors.js';
import { type EngineOptions, invalidInput, type PublicOptions } from './options.js';
import { lookupByBodyHttp, lookupHttp, readEvidenceHttp } from './public/lookup.js';
import { readLogEntryHttp } from './public/log-entry.js';
import {
  readHistoryHttp,
  readPublicKeysHttp,
  readTrustChainHttp,
  readTrustPackageHttp,
} from './public/views.js';
import { waitForVerdictHttp } from './public/wait.js';

/** Options of a client. A call throws `invalid_input` for a missing option that it needs. */
export type SvcOptions = Partial<EngineOptions & PublicOptions>;

type Functions<O> = Record<string, (options: O, ...args: never[]) => unknown>;

/** Functions of this package without their first argument, the options. */
export type Bound<T> = {
  readonly [K in keyof T]: T[K] extends (options: never, ...args: infer A) => infer R
    ? (...args: A) => R
    : never;
};

/** The functions of this package as methods of an object that has their options. */
export class Svc {
  readonly #options: SvcOptions;

  /** `POST /v1/intents/execute`; see {@link executeIntentHttp}. */
  readonly execute = this.#engine({ execute: executeIntentHttp }).execute;
  /** `POST /v1/agent/admissions`; see {@link admitHttp}. */
  readonly admit = this.#engine({ admit: admitHttp }).admit;
  /** Waits for a decision; see {@link followAdmissionHttp}. */
  readonly follow = this.#engine({ follow: followAdmissionHttp }).follow;
  readonly batches = this.#engine({
    /** See {@link admitBatchHttp}. */
    admit: admitBatchHttp,
    /** See {@link followBatchHttp}. */
    follow: followBatchHttp,
    /** See {@link listBatchesHttp}. */
    list: listBatchesHttp,
    /** See {@link readBatchHttp}. */
    read: readBatchHttp,
  });
  readonly proofs = {
    ...this.#engine({
      /** See {@link listProofsHttp}. */
      list: listProofsHttp,
      /** See {@link readProofHttp}. */
      read: readProofHttp,
      /** See {@link verifyProofHttp}. */
      verify: verifyProofHttp,
      /** See {@link replayProofHttp}. */
      replay: replayProofHttp,
      /** See {@link readReceiptEvidenceHttp}. */
      evidence: readReceiptEvidenceHttp,
    }),
    /** See {@link exportProofHttp}. */
    export: <F extends ExportFormat = 'json'>(
      input: Parameters<typeof exportProofHttp<F>>[1],
    ): Promise<RequestHashEnvelope<ExportFormats[F]>> =>
      exportProofHttp(this.#engineOptions(), input),
    /** See {@link getProofInclusionHttp}. */
    inclusion: <F extends InclusionFormat = 'json'>(
      input: Parameters<typeof getProofInclusionHttp<F>>[1],
    ): Promise<RequestHashEnvelope<InclusionFormats[F]>> =>
      getProofInclusionHttp(this.#engineOptions(), input),
  };
  readonly runs = this.#engine({
    /** See {@link readRunHttp}. */
    read: readRunHttp,
    /** See {@link exportRunHttp}. */
    export: exportRunHttp,
  });
  readonly approvals = this.#engine({
    /** See {@link readApprovalRequest}. */
    request: readApprovalRequest,
    /** See {@link submitApproval}. */
    submit: submitApproval,
    /** See {@link waitForApproval}. */
    wait: waitForApproval,
  });
  readonly approvers = this.#engine({
    /** See {@link registerApproverHttp}. */
    register: registerApproverHttp,
    /** See {@link listApproversHttp}. */
    list: listApproversHttp,
    /** See {@link retireApproverHttp}. */
    retire: retireApproverHttp,
  });
  readonly artifacts = this.#engine({
    /** See {@link revokeArtifactHttp}. */
    revoke: revokeArtifactHttp,
    /** See {@link readRevocationHttp}. */
    revocation: readRevocationHttp,
  });
  readonly shareTokens = this.#engine({
    /** See {@link createShareTokenHttp}. */
    create: createShareTokenHttp,
    /** See {@link listShareTokensHttp}. */
    list: listShareTokensHttp,
    /** See {@link revokeShareTokenHttp}. */
    revoke: revokeShareTokenHttp,
  });
  readonly packages = this.#engine({
    /** See {@link createPackageHttp}. */
    create: createPackageHttp,
    /** See {@link listPackagesHttp}. */
    list: listPackagesHttp,
    /** See {@link readPackageHttp}. */
    read: readPackageHttp,
  });
  readonly overlays = this.#engine({
    /** See {@link storeOverlayHttp}. */
    store: storeOverlayHttp,
    /** See {@link listOverlaysHttp}. */
    list: listOverlaysHttp,
    /** See {@link testOverlayHttp}. */
    test: testOverlayHttp,
    /** See {@link activateOverlayHttp}. */
    activate: activateOverlayHttp,
    /** See {@link deactivateOverlayHttp}. */
    deactivate: deactivateOverlayHttp,
  });
  readonly keys = this.#engine({
    /** See {@link createApiKeyHttp}. */
    create: createApiKeyHttp,
    /** See {@link listApiKeysHttp}. */
    list: listApiKeysHttp,
    /** See {@link revokeApiKeyHttp}. */
    revoke: revokeApiKeyHttp,
  });
  /** The public API. */
  readonly registry = this.#public({
    /** See {@link lookupHttp}. */
    lookup: lookupHttp,
    /** See {@link lookupByBodyHttp}. */
    lookupByBody: lookupByBodyHttp,
    /** See {@link readEvidenceHttp}. */
    evidence: readEvidenceHttp,
    /** See {@link readHistoryHttp}. */
    history: readHistoryHttp,
    /** See {@link readTrustChainHttp}. */
    trustChain: readTrustChainHttp,
    /** See {@link readTrustPackageHttp}. */
    trustPackage: readTrustPackageHttp,
    /** See {@link readPublicKeysHttp}. */
    keys: readPublicKeysHttp,
    /** See {@link waitForVerdictHttp}. */
    waitForVerdict: waitForVerdictHttp,
    /** See {@link readLogEntryHttp}. */
    logEntry: readLogEntryHttp,
  });

  /**
   * In Node, the defaults are `SVC_ENGINE_URL`, `SVC_TENANT_ID`, `SVC_PUBLIC_URL` and `SVC_API_KEY`, or
   * the key in the file that `SVC_API_KEY_FILE` names. Opens no connection.
   */
  constructor(options: SvcOptions = {}) {
    this.#options = options;
  }

  #engineOptions(): EngineOptions {
    const { engineUrl, apiKey, tenantId, ...rest } = this.#options;
    return {
      ...rest,
      engineUrl: required('engineUrl', engineUrl ?? environment('SVC_ENGINE_URL')),
      apiKey: required('apiKey', apiKey ?? environment('SVC_API_KEY') ?? keyInFile()),
      tenantId: required('tenantId', tenantId ?? environment('SVC_TENANT_ID')),
    };
  }

  #publicOptions(): PublicOptions {
    const { publicUrl, ...rest } = this.#options;
    return {
      ...rest,
      publicUrl: required('publicUrl', publicUrl ?? environment('SVC_PUBLIC_URL')),
    };
  }

  #engine<T extends Functions<EngineOptions>>(functions: T): Bound<T> {
    return bind(functions, () => this.#engineOptions());
  }

  #public<T extends Functions<PublicOptions>>(functions: T): Bound<T> {
    return bind(functions, () => this.#publicOptions());
  }
}

function bind<O, T extends Functions<O>>(functions: T, options: () => O): Bound<T> {
  const bound = Object.entries(functions).map(([name, call]) => [
    name,
    (...args: never[]) => call(options(), ...args),
  ]);
  return Object.fromEntries(bound) as Bound<T>;
}

function required(name: keyof SvcOptions, value: string | undefined): string {
  if (value !== undefined && value !== '') return value;
  throw invalidInput(`/${name}`, `the client has no ${name}`);
}

/** The part of Node's `process` that the defaults need. */
interface NodeProcess {
  env: Record<string, string | undefined>;
  getBuiltinModule: (name: 'node:fs') => { readFileSync: (file: string, as: 'utf8') => string };
}

/** Node's `process`; undefined in a browser. */
const node = Reflect.get(globalThis, 'process') as NodeProcess | undefined;

function environment(name: string): string | undefined {
  const value = node?.env[name];
  return value === '' ? undefined : value;
}

function keyInFile(): string | undefined {
  const file = environment('SVC_API_KEY_FILE');
  if (node === undefined || file === undefined) return undefined;
  try {
    return node.getBuiltinModule('node:fs').readFileSync(file, 'utf8').trim();
  } catch (cause) {
    throw new SdkError('invalid_input', `SVC_API_KEY_FILE ${file} cannot be read`, { cause });
  }
}
