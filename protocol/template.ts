import { parseTime } from './time.js';

/** A time on the 1st to 28th, days that every month has. {@link parseTime} checks other days. */
const PLAIN_TIME =
  /[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z/y;

const HEX_32 = /[0-9a-f]{32}/y;
const HEX_64 = /[0-9a-f]{64}/y;

/**
 * Matches a text against a template of fixed parts and fields in RFC 8785 order. A complete match
 * proves canonical form: nothing is skipped, and each part has one spelling. After the first
 * mismatch every read returns empty and `ended` is false. The template covers common cases only, so
 * after a mismatch the general parser decides.
 */
export class TemplateReader {
  private at = 0;
  private followed = true;

  constructor(private readonly text: string) {}

  get ended(): boolean {
    return this.followed && this.at === this.text.length;
  }

  part(part: string): void {
    if (this.text.startsWith(part, this.at)) this.at += part.length;
    else this.followed = false;
  }

  takes(part: string): boolean {
    if (!this.text.startsWith(part, this.at)) return false;
    this.at += part.length;
    return true;
  }

  hex(count: 32 | 64): string {
    return this.matching(count === 64 ? HEX_64 : HEX_32);
  }

  /** Reads `count` characters that match the pattern. */
  fitting(count: number, pattern: RegExp): string {
    const end = this.at + count;
    const field = this.text.slice(this.at, end);
    return pattern.test(field) ? this.taken(end) : this.depart();
  }

  matching(pattern: RegExp): string {
    pattern.lastIndex = this.at;
    return pattern.test(this.text) ? this.taken(pattern.lastIndex) : this.depart();
  }

  time(): string {
    const end = this.at + 24;
    PLAIN_TIME.lastIndex = this.at;
    if (PLAIN_TIME.test(this.text)) return this.taken(end);
    try {
      parseTime(this.text.slice(this.at, end));
    } catch {
      return this.depart();
    }
    return this.taken(end);
  }

  /** Reads one of the words; none may be a prefix of another. */
  oneOf<W extends string>(words: readonly W[]): W {
    for (const word of words) {
      if (this.takes(word)) return word;
    }
    this.followed = false;
    return words[0]!;
  }

  /**
   * Reads a string of 1 to `most` characters without JSON escapes. Leaves surrogates to the general
   * parser, so that code units are code points.
   */
  plain(most: number): string {
    const start = this.at;
    for (let i = start; i - start <= most; i++) {
      const code = this.text.charCodeAt(i);
      if (code === 0x22) return i > start ? this.taken(i) : this.depart();
      if (!(code >= 0x20) || code === 0x5c || (code >= 0xd800 && code <= 0xdfff)) break;
    }
    return this.depart();
  }

  /** Reads `null`, or a value between quotation marks. */
  nullOr(read: () => string): string | null {
    if (this.takes('null')) return null;
    return this.quoted(read);
  }

  quoted(read: () => string): string {
    this.part('"');
    const field = read();
    this.part('"');
    return field;
  }

  private taken(end: number): string {
    const field = this.text.slice(this.at, end);
    this.at = end;
    return field;
  }

  private depart(): string {
    this.followed = false;
    return '';
  }
}
