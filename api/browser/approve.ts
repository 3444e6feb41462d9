import './jitless.js';
import {
  type ApprovalSubject,
  approvalExpiry,
  describeSubject,
  readApprovalRequest,
} from '#protocol/approval-request';
import { approvalToSign, registrationToSign } from '#protocol/approvals';
import { fromBase64Url, toBase64Url, toHex, utf8 } from '#protocol/bytes';
import { attempt } from '#protocol/errors';
import { documentHash, nobleSha256 } from '#protocol/hash';
import { canonicalize, type JsonValue, parseStrict } from '#protocol/json';
import { approvalRequestSchema } from '#protocol/schemas/approval-request';
import {
  type Approval,
  type ApproverKey,
  type Registration,
  registrationSchema,
} from '#protocol/schemas/approvals';
import { SCHEMA } from '#protocol/schemas/ids';
import { INVISIBLE } from '#protocol/text';
import { openSchema } from '#protocol/schemas/open-schema';

const STORED = 'svc-approver-registration';
const TIMEOUT_MS = 15_000;
const POLL_MS = 1_000;
const MAX_POLLS = 60;

/** COSE algorithms (RFC 9053), in order of preference. */
const EDDSA = -8;
const ES256 = -7;

const element = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const input = (id: string): HTMLInputElement => element(id);

/** The request that the page displays for a decision; null until a request is displayed. */
let shown: { apiKey: string; registration: Registration; subject: ApprovalSubject } | null = null;

onSubmit('load', showRequest);
onSubmit('decide', decide);
onSubmit('register', register);
input('proof-id').value = location.hash.slice(1);
showApprover(storedRegistration());

/** Runs one action at a time, and shows the error of a failed action. */
function onSubmit(id: string, run: (button: HTMLButtonElement) => Promise<void>): void {
  element(id).addEventListener('submit', (event) => {
    event.preventDefault();
    const buttons = [...document.querySelectorAll('button')];
    buttons.forEach((one) => (one.disabled = true));
    element('alert').textContent = '';
    element('result').replaceChildren();
    run(event.submitter as HTMLButtonElement)
      .catch((error: unknown) => {
        element('alert').textContent = error instanceof Error ? error.message : String(error);
        element('alert').scrollIntoView({ block: 'nearest' });
      })
      .finally(() => buttons.forEach((one) => (one.disabled = false)));
  });
}

async function showRequest(): Promise<void> {
  shown = null;
  element('request').hidden = true;
  const registration = storedRegistration() ?? (await chosenRegistration());
  const apiKey = input('api-key').value.trim();
  const proofId = input('proof-id').value.trim();
  const tenantId = registration.tenant_id;
  const answer = await send({ apiKey, tenantId }, `/v1/approvals/${proofId}`);
  if (answer.status !== 200) throw new Error(describe(answer));
  const request = openSchema(approvalRequestSchema).safeParse(answer.document);
  if (!request.success)
    throw new Error('The server sent no valid approval request. Do not decide.');
  const read = readApprovalRequest(nobleSha256, request.data, { proofId, tenantId });
  if ('fault' in read) {
    throw new Error(`Do not decide. The request does not match the signed proof: ${read.fault}.`);
  }
  const { subject } = read;
  element('rows').replaceChildren(...describeSubject(subject).map(rowOf));
  element('hash').textContent = subject.aepHash;
  element('request').hidden = false;
  element('request-title').focus();
  shown = { apiKey, registration, subject };
}

/**
 * The agent chose most texts. A direction override could show an amount or an account backwards, and an
 * invisible character could make two names look equal, so the page shows such characters as U+FFFD.
 */
function rowOf([label, text]: [string, string]): HTMLElement {
  const row = document.createElement('div');
  const [name, value] = [document.createElement('dt'), document.createElement('dd')];
  name.textContent = label;
  value.textContent = text.replace(INVISIBLE, '\u{FFFD}');
  row.append(name, value);
  return row;
}

async function decide(button: HTMLButtonElement): Promise<void> {
  if (shown === null) throw new Error('Show the request first.');
  const { apiKey, registration, subject } = shown;
  const { tenant_id: tenantId } = registration;
  const statement: Approval['statement'] = {
    schema_version: SCHEMA.approval,
    tenant_id: tenantId,
    proof_id: subject.aep.proof_id,
    aep_hash: subject.aepHash,
    decision: button.value === 'approve' ? 'approve' : 'reject',
    registration_hash: documentHash(nobleSha256, registration),
    expires_at: approvalExpiry(subject.notes, Date.now()),
    nonce: randomHex(16),
  };
  const signature = await assertion(registration.webauthn, approvalToSign(statement));
  const approval = { schema_version: SCHEMA.approvalEnvelope, statement, signature };
  const accepted = await send({ apiKey, tenantId }, '/v1/approvals', approval);
  const { proof_id: second } = accepted.document;
  if (accepted.status !== 202 || typeof second !== 'string')
    throw new Error(`Not accepted. ${describe(accepted)}`);
  // A request can be decided only once.
  shown = null;
  element('request').hidden = true;
  report(`Accepted: ${statement.decision}. Waiting for the decision…`);
  report(await outcomeOf({ apiKey, tenantId }, second, subject), `Proof: ${second}`);
}

async function outcomeOf(
  caller: Caller,
  proofId: string,
  { requestHash }: ApprovalSubject,
): Promise<string> {
  for (let polls = 1; polls <= MAX_POLLS; polls++) {
    const answer = await send(caller, `/v1/admissions/${proofId}`);
    const { document, status } = answer;
    const receipt = (status === 200 ? document : document['receipt']) as
      Record<string, JsonValue> | undefined;
    const isOwn =
      receipt?.['registry_proof_id'] === proofId && receipt['request_hash'] === requestHash;
    if (status === 200 && isOwn && receipt['status'] === 'ADMITTED') {
      return 'The action is admitted: the agent may act.';
    }
    if (status === 403 && isOwn && document['code'] === 'policy_denied') {
      return `The action is denied: the agent may not act. ${describe(answer)}`;
    }
    if (status !== 202) throw new Error(`No decision. ${describe(answer)}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  throw new Error(`Accepted, but not decided yet. Look up the proof ${proofId} later.`);
}

async function register(): Promise<void> {
  const [tenantId, name] = [input('tenant').value.trim(), input('name').value.trim()];
  const created = await confirmed(() =>
    navigator.credentials.create({
      publicKey: {
        challenge: crypto.getRandomValues(new Uint8Array(32)),
        rp: { name: 'Approvals', id: location.hostname },
        user: { id: crypto.getRandomValues(new Uint8Array(16)), name, displayName: name },
        pubKeyCredParams: [EDDSA, ES256].map((alg) => ({ type: 'public-key', alg })),
        authenticatorSelection: { userVerification: 'required' },
      },
    }),
  );
  const response = created.response as AuthenticatorAttestationResponse;
  const unsigned = {
    schema_version: SCHEMA.approver,
    tenant_id: tenantId,
    approver: name,
    public_key: publicKeyOf(response),
    webauthn: {
      rp_id: location.hostname,
      origins: [location.origin],
      credential_id: toBase64Url(new Uint8Array(created.rawId)),
    },
    salt: randomHex(32),
  };
  const signature = await assertion(unsigned.webauthn, registrationToSign(unsigned));
  const registration = registrationSchema.parse({ ...unsigned, signature });
  const text = canonicalize(registration);
  localStorage.setItem(STORED, text);
  showApprover(registration);
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  link.download = 'registration.json';
  link.textContent = 'Save registration.json';
  report(
    `Registration created for ${name}. Save the file, and register it with svc register-approver:`,
    link,
  );
  link.focus();
}

/** Reads the key's coordinates, the last bytes of its SubjectPublicKeyInfo (RFC 5480, RFC 8410). */
function publicKeyOf(response: AuthenticatorAttestationResponse): ApproverKey {
  const spki = new Uint8Array(response.getPublicKey() ?? []);
  const algorithm = response.getPublicKeyAlgorithm();
  if (algorithm === EDDSA && spki.length === 44) {
    return { kty: 'OKP', crv: 'Ed25519', x: toBase64Url(spki.subarray(-32)) };
  }
  if (algorithm === ES256 && spki.length === 91) {
    const [x, y] = [spki.subarray(-64, -32), spki.subarray(-32)].map(toBase64Url);
    return { kty: 'EC', crv: 'P-256', x: x!, y: y! };
  }
  throw new Error(
    'Not registered: this browser returned no supported public key. Use another browser.',
  );
}

/** Requests a WebAuthn signature of the message's hash from the registered credential only. */
async function assertion(
  webauthn: Registration['webauthn'],
  message: Uint8Array,
): Promise<Approval['signature']> {
  if (webauthn === null) throw new Error('This registration is for `svc approve`, not for a page.');
  const { credential_id, origins, rp_id } = webauthn;
  if (!origins.includes(location.origin)) {
    throw new Error(`Nothing was signed: this registration is for ${origins.join(', ')}.`);
  }
  const credential = await confirmed(() =>
    navigator.credentials.get({
      publicKey: {
        challenge: nobleSha256(message) as BufferSource,
        rpId: rp_id,
        allowCredentials: [
          { type: 'public-key', id: fromBase64Url(credential_id) as BufferSource },
        ],
        userVerification: 'required',
      },
    }),
  );
  const { authenticatorData, clientDataJSON, signature } =
    credential.response as AuthenticatorAssertionResponse;
  const encoded = (bytes: ArrayBuffer): string => toBase64Url(new Uint8Array(bytes));
  return {
    type: 'webauthn',
    authenticator_data: encoded(authenticatorData),
    client_data_json: encoded(clientDataJSON),
    sig: encoded(signature),
  };
}

/**
 * Runs a WebAuthn ceremony. Browsers reject ceremonies on pages under an IP address or without TLS.
 */
async function confirmed(ceremony: () => Promise<Credential | null>): Promise<PublicKeyCredential> {
  if (!window.isSecureContext || /^[\d.]+$|:/.test(location.hostname)) {
    throw new Error('Open this page with https and its domain name, or as localhost.');
  }
  try {
    return (await ceremony()) as PublicKeyCredential;
  } catch (cause) {
    const why = 'the request was cancelled or timed out, or no suitable device verified you';
    throw new Error(`Nothing was signed: ${why}. Try again.`, { cause });
  }
}

interface Caller {
  apiKey: string;
  tenantId: string;
}

interface Answer {
  status: number;
  document: Record<string, JsonValue>;
}

async function send({ apiKey, tenantId }: Caller, path: string, body?: object): Promise<Answer> {
  const response = await fetch(path, {
    method: body === undefined ? 'GET' : 'POST',
    headers: {
      'X-Svc-Api-Key': apiKey,
      'X-Svc-Tenant-Id': tenantId,
      'svc-api-version': 'v1',
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
    },
    ...(body !== undefined && { body: canonicalize(body as JsonValue) }),
    credentials: 'omit',
    signal: AbortSignal.timeout(TIMEOUT_MS),
  }).catch((cause: unknown) => {
    throw new Error('The server cannot be reached. Try again.', { cause });
  });
  const bytes = new Uint8Array(await response.arrayBuffer());
  const document = attempt(() => parseStrict(bytes)) as Answer['document'] | undefined;
  return { status: response.status, document: document ?? {} };
}

function describe({ document, status }: Answer): string {
  // Replaces the server's detail, which names a request header that a person at this page cannot set.
  if (status === 401) return 'This API key is not valid: check it, or get another key.';
  const { detail } = document;
  return typeof detail === 'string' ? detail : `The server answered with status ${status}.`;
}

function report(...parts: (string | HTMLElement)[]): void {
  const paragraph = document.createElement('p');
  paragraph.append(...parts.flatMap((part, at) => (at === 0 ? [part] : [' ', part])));
  element('result').replaceChildren(paragraph);
}

function showApprover(registration: Registration | null): void {
  element('choose').hidden = registration !== null;
  input('registration').required = registration === null;
  element('approver').hidden = registration === null;
  const isNew = registration === null && location.hash === '';
  element<HTMLDetailsElement>('registering').open = isNew;
  if (registration === null) return;
  const { approver, tenant_id } = registration;
  const forget = document.createElement('button');
  forget.type = 'button';
  forget.className = 'quiet';
  forget.textContent = 'Forget this registration';
  forget.addEventListener('click', () => {
    localStorage.removeItem(STORED);
    location.reload();
  });
  element('approver').replaceChildren(`Approver ${approver} of the tenant ${tenant_id} `, forget);
}

async function chosenRegistration(): Promise<Registration> {
  const text = (await input('registration').files?.[0]?.text()) ?? '';
  const registration = parseRegistration(text);
  if (registration === null) throw new Error('This file is not a registration of an approver.');
  localStorage.setItem(STORED, text);
  showApprover(registration);
  return registration;
}

function storedRegistration(): Registration | null {
  return parseRegistration(attempt(() => localStorage.getItem(STORED)) ?? '');
}

function parseRegistration(text: string): Registration | null {
  return registrationSchema.safeParse(attempt(() => parseStrict(utf8(text)))).data ?? null;
}

const randomHex = (length: number): string => toHex(crypto.getRandomValues(new Uint8Array(length)));
