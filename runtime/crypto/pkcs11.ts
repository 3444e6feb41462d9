import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { attempt } from '#protocol/errors';
import { readPrivateFile } from '../process/files.js';
import { OperatorError } from '../process/operator-error.js';
import { publicKeyInSpki, type Signer } from './node.js';

/** A call fails after this time, so that a silent device cannot stall the program. */
const TIMEOUT_MS = 5_000;

interface Pkcs11Uri {
  /** Arguments of `pkcs11-tool` that select the key. */
  selection: string[];
  pinFile: string;
}

/** Accepts only the attributes of RFC 7512 that select a token, one key, the module and a file with the PIN. */
function parsePkcs11Uri(uri: string): Pkcs11Uri {
  const invalid = (what: string): OperatorError =>
    new OperatorError(
      `${uri.replace(/pin-value=[^&]*/, 'pin-value=…')}: ${what}. A key is named like ` +
        'pkcs11:token=svc;id=%01?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=file:///etc/svc/pin',
    );
  const [path = '', query = '', ...more] = uri.slice('pkcs11:'.length).split('?');
  if (more.length > 0) throw invalid('it has more than one question mark');
  const attributes = new Map<string, string>();
  for (const part of [...path.split(';'), ...query.split('&')].filter((one) => one !== '')) {
    const [name = '', value = ''] = part.split(/=(.*)/s);
    const isKnown = ['token', 'id', 'module-path', 'pin-source'].includes(name);
    if (!isKnown || attributes.has(name)) throw invalid(`${name} is unknown or repeated`);
    attributes.set(name, value);
  }
  const given = (name: string): string => {
    const value = attributes.get(name) ?? '';
    if (value === '') throw invalid(`${name} is missing`);
    return value;
  };
  const text = (name: string): string => {
    const encoded = given(name);
    const decoded = attempt(() => decodeURIComponent(encoded));
    if (decoded === undefined) throw invalid(`${name} is not percent-encoded`);
    return decoded;
  };
  // Only the id selects a key: given a label, pkcs11-tool signs with any key of the token.
  const key = ['--id', hexOf(given('id'))];
  const pinSource = text('pin-source');
  // A URL has no relative path: file:pin would be read as /pin.
  const pinFile = /^file:\//i.test(pinSource) ? attempt(() => fileURLToPath(pinSource)) : undefined;
  if (pinFile === undefined) throw invalid('pin-source does not name a file');
  return {
    selection: ['--module', text('module-path'), '--token-label', text('token'), ...key],
    pinFile,
  };
}

const hexOf = (encoded: string): string =>
  encoded.replace(/%([0-9a-f]{2})|([^%])/gi, (_, hex: string | undefined, char: string) =>
    (hex ?? char.charCodeAt(0).toString(16).padStart(2, '0')).toLowerCase(),
  );

/**
 * A key in a PKCS#11 token, used through OpenSC's `pkcs11-tool`: one process per call, so that a crash
 * in the vendor's module cannot end this program.
 */
export async function openPkcs11Key(uri: string): Promise<Signer> {
  const { selection, pinFile } = parsePkcs11Uri(uri);
  const pin = readPrivateFile(pinFile, 'PIN').trim();
  const call = (options: string[], input: Uint8Array): Promise<Buffer> =>
    run(uri, [...selection, '--login', '--pin', 'env:SVC_PKCS11_PIN', ...options], pin, input);
  const pem = await call(['--read-object', '--type', 'pubkey'], new Uint8Array());
  const spki = Buffer.from(pem.toString('latin1').replace(/-----[^-]+-----/g, ''), 'base64');
  return {
    publicKey: publicKeyInSpki(uri, spki),
    sign: (message) => call(['--sign', '--mechanism', 'EDDSA'], message),
  };
}

/** Reads the PIN from the first line of the input, because other users can read the arguments of a process. */
const WITH_PIN = 'IFS= read -r SVC_PKCS11_PIN && export SVC_PKCS11_PIN && exec pkcs11-tool "$@"';

function run(uri: string, options: string[], pin: string, input: Uint8Array): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const child = spawn('/bin/sh', ['-c', WITH_PIN, 'sh', ...options], {
      timeout: TIMEOUT_MS,
      killSignal: 'SIGKILL',
    });
    const fail = (cause: string): void =>
      reject(new OperatorError(`pkcs11-tool failed for ${uri}: ${cause}`));
    const output: Buffer[] = [];
    let errors = '';
    child.stdout.on('data', (chunk: Buffer) => output.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
    child.on('error', ({ message }) => fail(message));
    child.on('close', (code, signal) => {
      if (code === 0) resolve(Buffer.concat(output));
      else if (code === 127) fail('it is not installed; it is part of OpenSC');
      else fail(signal === null ? errors.trim() : `no answer within ${TIMEOUT_MS / 1000} s`);
    });
    child.stdin.on('error', () => undefined);
    child.stdin.end(Buffer.concat([Buffer.from(`${pin}\n`), input]));
  });
}
