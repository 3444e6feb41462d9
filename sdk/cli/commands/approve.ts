import { Option } from 'commander';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { createInterface } from 'node:readline/promises';
import { approvalExpiry, describeSubject } from '../../../protocol/approval-request.js';
import * as sdk from '../../index.js';
import { requireApprover } from '../../engine/approvals.js';
import { type CommandSpec, type Invocation, UsageError } from '../config.js';
import { createFile, errno, readDocument, readText } from '../files.js';
import { EXIT, type ExitCode, LABEL_WIDTH, row, styled, type Terminal } from '../terminal.js';
import { printDocument } from './resources.js';

interface KeyOptions {
  key: string;
  registration: string;
}

const keyOptions = [
  new Option('--key <FILE>', 'private key of the approver, in PEM').makeOptionMandatory(),
  new Option('--registration <FILE>', 'registration of the approver').default('registration.json'),
];

export const approverCommand: CommandSpec<KeyOptions> = {
  name: 'approver',
  summary: 'Create the registration of an approver, and a key unless it exists',
  description:
    'NAME is the name of the approver for policies and auditors. Register the file with `svc register-approver`, and keep it: `svc approve` needs both files. A new key file has the mode 0600. An existing key is Ed25519 in PEM, as from `openssl genpkey -algorithm ed25519`. Needs SVC_TENANT_ID, and sends no request.',
  examples: ['svc approver ops-lead --key ops-lead.pem'],
  argument: '<NAME>',
  options: keyOptions,
  run: async (invocation) => {
    const { argument: approver, json, options, terminal } = invocation;
    const tenantId = invocation.tenant();
    await createKey(options.key);
    const privateKey = await readKey(options.key);
    const registration = await sdk.createApproverRegistration({ tenantId, approver, privateKey });
    // Never replaces a registration: the approver could no longer approve under the old registration.
    await createFile(options.registration, sdk.canonicalJson(registration));
    printDocument(invocation, {
      registration_hash: sdk.canonicalHash(registration),
      key: options.key,
      registration: options.registration,
    });
    if (!json) terminal.printError(`next: svc register-approver ${options.registration}`);
    return EXIT.success;
  },
};

const NEEDS = 'Needs SVC_ENGINE_URL, SVC_TENANT_ID and an API key with the scope approvers.';

export const registerApproverCommand: CommandSpec = {
  name: 'register-approver',
  summary: 'Register an approver, so that the approvals of this approver count',
  description: `FILE is the registration, which \`svc approver\` or the page for approvals created. The log gets only its hash. Registering the file again changes nothing. ${NEEDS}`,
  examples: ['svc register-approver registration.json', 'svc list approvers'],
  argument: '<FILE>',
  run: async (invocation) => {
    const registration = await readDocument(invocation.argument);
    const engine = invocation.engine();
    return printApprover(invocation, await sdk.registerApproverHttp(engine, registration as never));
  },
};

export const retireApproverCommand: CommandSpec = {
  name: 'retire-approver',
  summary: 'Retire an approver permanently; earlier decisions stay valid',
  description: `HASH is the hash of the registration (\`svc list approvers\`). ${NEEDS}`,
  examples: [
    'svc retire-approver d12f20a82d4668f7cdd1da49f95ab398114804deab5970121239a94b116845e5',
  ],
  argument: '<HASH>',
  run: async (invocation) => {
    const hash = { registration_hash: invocation.argument };
    return printApprover(invocation, await sdk.retireApproverHttp(invocation.engine(), hash));
  },
};

function printApprover(invocation: Invocation, approver: sdk.RegisteredApprover): ExitCode {
  if (invocation.json) return printDocument(invocation, approver);
  const { registration_hash, registration, state, leaf_index } = approver;
  const rows = { registration_hash, approver: registration.approver, state, leaf_index };
  return printDocument(invocation, rows);
}

/** Never replaces a key: the approver could no longer approve under the registration of the old key. */
async function createKey(file: string): Promise<void> {
  const { privateKey } = generateKeyPairSync('ed25519');
  const pem = privateKey.export({ format: 'pem', type: 'pkcs8' });
  await createFile(file, pem as string, 0o600).catch((error: Error) => {
    if (errno(error.cause) !== 'EEXIST') throw error;
  });
}

type ApproveOptions = KeyOptions & { reject?: true; yes?: true };

export const approveCommand: CommandSpec<ApproveOptions> = {
  name: 'approve',
  summary: 'Approve or reject an action that requires an approval',
  description:
    'Shows the requested action, signs the decision with the key of a registered approver, and waits for the second decision. The command recomputes the AEP hash that it signs, and every value that it shows, from the signed proof, except the explanations of policies, which the engine states. Needs SVC_ENGINE_URL, SVC_TENANT_ID and an API key with the scope approve.\n\n' +
    'Exits 0 when the action is admitted, 4 when it is denied, also by --reject, 1 when the engine shows values that do not match the proof, and 3 when you did not confirm, the approval was rejected, or its effect is not known.',
  examples: [
    'svc approve 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --key ops-lead.pem',
    'svc approve 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --key ops-lead.pem --reject --yes',
  ],
  argument: '<PROOF_ID>',
  options: [
    ...keyOptions,
    ['--reject', 'reject the action'],
    ['-y, --yes', 'do not ask for confirmation'],
  ],
  run: approve,
};

async function approve(invocation: Invocation<ApproveOptions>): Promise<ExitCode> {
  const { argument: proof_id, json, options, terminal } = invocation;
  const engine = invocation.engine();
  if (options.yes !== true) requireTerminal(invocation);
  const approver = await readApprover(options, engine.tenantId);
  const subject = await sdk.readApprovalRequest(engine, { proof_id });
  const decision = options.reject === true ? 'reject' : 'approve';
  if (!json) for (const one of describeSubject(subject)) printRow(terminal, ...one);
  if (options.yes !== true && !(await isConfirmed(invocation, decision))) {
    terminal.printError('nothing was signed');
    return EXIT.undecided;
  }
  const approval = await sdk.signApproval(approver, {
    proof_id,
    aep_hash: subject.aepHash,
    decision,
    expires_at: approvalExpiry(subject.notes, Date.now()),
  });
  const second = await sdk.submitApproval(engine, approval);
  const { code, status } = await outcomeOf(
    sdk.followAdmissionHttp({ ...engine, receiptEvidence: false }, second),
    subject,
  );
  if (json) terminal.printJson({ decision, status, pending_proof_id: proof_id, ...second });
  else {
    terminal.print(styled(code, status));
    terminal.print(...row('proof', second.proof_id));
  }
  return code;
}

/**
 * Indents continuations, also of a long label: a text of the agent must not imitate a row. Redacts first, because the
 * terminal would not recognize half a key.
 */
function printRow({ columns, print, redactor }: Terminal, label: string, text: string): void {
  const indent = Math.max(Math.min(LABEL_WIDTH + 1, columns - 2), 1);
  const lines = [''];
  let used = 0;
  for (const character of redactor.redact(`${label.padEnd(LABEL_WIDTH)} ${text}`)) {
    // No character takes more than two columns; counting two for a narrow character only wraps earlier.
    const width = /[ -~]/.test(character) ? 1 : 2;
    if (used + width > columns) {
      lines.push(' '.repeat(indent));
      used = indent;
    }
    lines[lines.length - 1] += character;
    used += width;
  }
  lines.forEach((line, at) => {
    const end = at === 0 ? redactor.redact(label).length : 0;
    print({ style: 'dim', text: line.slice(0, end) }, line.slice(end));
  });
}

/** After `reject` the second decision is a denial, whose receipt is in the error. */
async function outcomeOf(
  followed: ReturnType<typeof sdk.followAdmissionHttp>,
  { requestHash }: sdk.ApprovalSubject,
): Promise<{ code: ExitCode; status: 'ADMITTED' | 'DENIED' }> {
  const receipt = await followed.catch((error: unknown) => {
    if (error instanceof sdk.SdkError && error.denial !== undefined) return error.denial.receipt;
    throw error;
  });
  const { request_hash, status } = receipt;
  if (request_hash !== requestHash) {
    throw new sdk.SdkError('unexpected_response', 'the second decision is not about this request');
  }
  return { status, code: status === 'ADMITTED' ? EXIT.success : EXIT.denied };
}

async function readApprover({ key, registration: file }: KeyOptions, tenantId: string) {
  const registration = (await readDocument(file)) as never as sdk.ApproverRegistration;
  const approver: sdk.Approver = { privateKey: await readKey(key), registration };
  try {
    await requireApprover(approver);
  } catch (cause) {
    const message = `${key} and ${file} are not the key and registration of an approver: ${(cause as Error).message}`;
    throw new UsageError(message, { cause });
  }
  if (registration.tenant_id === tenantId) return approver;
  throw new UsageError(
    `${file} registers an approver of tenant ${registration.tenant_id}, not of ${tenantId}`,
  );
}

/** Rejects a key file that other users can read; Windows has no such modes. */
async function readKey(file: string): Promise<string> {
  const { mode = 0 } = (await stat(file).catch(() => null)) ?? {};
  if ((mode & 0o077) === 0 || process.platform === 'win32') return readText(file);
  throw new UsageError(`${file} is readable by other users: chmod 600 ${file}`);
}

/** Requires a terminal, because the approver must see the action that they confirm. */
function requireTerminal({ json, terminal }: Invocation<ApproveOptions>): void {
  const isTerminal = terminal.outIsTerminal && terminal.errorIsTerminal && process.stdin.isTTY;
  if (isTerminal && !json) return;
  throw new UsageError('without a terminal, and with --json, confirm with --yes');
}

async function isConfirmed(
  { signal }: Invocation<ApproveOptions>,
  decision: 'approve' | 'reject',
): Promise<boolean> {
  // With `terminal: true`, the line editor would keep SIGINT from the process.
  const lines = createInterface({ input: process.stdin, output: process.stderr, terminal: false });
  try {
    const prompt = `Type ${decision} to sign this decision: `;
    const ended = once(lines, 'close').then(() => '');
    const typed = await Promise.race([lines.question(prompt, { signal }), ended]);
    return typed.trim() === decision;
  } finally {
    lines.close();
  }
}
