//! What is said about programs that ranks start, in words: by who starts them to the keeper, and by
//! the keeper to the places.

/// A program, and how it is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Where it is.
    pub path: Vec<u8>,
    /// Its own name first.
    pub arguments: Vec<Vec<u8>>,
    /// The folder that it begins in.
    pub folder: Vec<u8>,
    /// Variables of its own, as `NAME=value`.
    pub env: Vec<Vec<u8>>,
}

/// What a program is told that ranks have started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Contexts of the inter-communicator with the parents, and of its own world.
    pub(super) ctx: u32,
    pub(super) world_ctx: u32,
    pub(super) appnum: u32,
    /// The rank that has started it.
    pub(super) root: u32,
    pub(super) world: Vec<u32>,
    /// They and the numbers of their programs (`addresses`).
    pub(super) parents: Vec<u32>,
}

impl Started {
    /// How many ranks its world has.
    pub fn size(&self) -> usize {
        self.world.len()
    }
}

/// What a place is told.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    /// To become that program.
    Begin(Command, Started),
    /// That there will be none.
    End,
}

/// What the keeper is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub ctx: u32,
    pub world_ctx: u32,
    /// They and the numbers of their programs (`addresses`).
    pub parents: Vec<u32>,
    /// Only places on this node.
    pub node: Option<u32>,
    /// How many of each, the numbers that will do, with the most first.
    pub programs: Vec<(Vec<u32>, Command)>,
}

const BEGIN: u32 = 0;
const END: u32 = 1;

/// Writes words.
#[derive(Default)]
pub(super) struct Words(pub Vec<u32>);

impl Words {
    pub fn word(mut self, word: u32) -> Words {
        self.0.push(word);
        self
    }

    pub fn list(mut self, list: &[u32]) -> Words {
        self.0.push(list.len() as u32);
        self.0.extend(list);
        self
    }

    /// Four in a word.
    pub fn bytes(mut self, bytes: &[u8]) -> Words {
        self.0.push(bytes.len() as u32);
        self.0.extend(bytes.chunks(4).map(|four| {
            let mut word = [0; 4];
            word[..four.len()].copy_from_slice(four);
            u32::from_le_bytes(word)
        }));
        self
    }

    fn texts(self, texts: &[Vec<u8>]) -> Words {
        let count = self.word(texts.len() as u32);
        texts.iter().fold(count, |words, text| words.bytes(text))
    }

    fn command(self, command: &Command) -> Words {
        let words = self.bytes(&command.path).bytes(&command.folder);
        words.texts(&command.arguments).texts(&command.env)
    }

    fn started(self, s: &Started) -> Words {
        let words = self.word(s.ctx).word(s.world_ctx).word(s.appnum).word(s.root);
        words.list(&s.world).list(&s.parents)
    }
}

/// Reads them.
pub(super) struct Reading<'a>(pub &'a [u32]);

impl Reading<'_> {
    pub fn word(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn list(&mut self) -> Option<Vec<u32>> {
        let length = self.word()? as usize;
        let (list, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(list.to_vec())
    }

    pub fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = self.word()? as usize;
        let (words, rest) = self.0.split_at_checked(length.div_ceil(4))?;
        self.0 = rest;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(length);
        Some(bytes)
    }

    fn texts(&mut self) -> Option<Vec<Vec<u8>>> {
        let count = self.word()?;
        (0..count).map(|_| self.bytes()).collect()
    }

    fn command(&mut self) -> Option<Command> {
        let (path, folder) = (self.bytes()?, self.bytes()?);
        Some(Command { path, folder, arguments: self.texts()?, env: self.texts()? })
    }

    fn started(&mut self) -> Option<Started> {
        let (ctx, world_ctx) = (self.word()?, self.word()?);
        let (appnum, root) = (self.word()?, self.word()?);
        Some(Started { ctx, world_ctx, appnum, root, world: self.list()?, parents: self.list()? })
    }
}

impl Order {
    pub(super) fn words(&self) -> Vec<u32> {
        match self {
            Order::Begin(command, started) => {
                Words(vec![BEGIN]).command(command).started(started).0
            }
            Order::End => vec![END],
        }
    }

    pub(super) fn parse(words: &[u32]) -> Option<Order> {
        let mut words = Reading(words);
        let order = match words.word()? {
            BEGIN => Order::Begin(words.command()?, words.started()?),
            END => Order::End,
            _ => return None,
        };
        words.0.is_empty().then_some(order)
    }

    /// The same of a message's bytes.
    pub fn of_bytes(bytes: &[u8]) -> Option<Order> {
        let words = bytes.chunks_exact(4).map(|word| word.try_into().map(u32::from_ne_bytes));
        Order::parse(&words.collect::<Result<Vec<_>, _>>().ok()?)
    }
}

impl Request {
    pub fn words(&self) -> Vec<u32> {
        let words = Words::default().word(self.ctx).word(self.world_ctx).list(&self.parents);
        let words = words.list(self.node.as_slice()).word(self.programs.len() as u32);
        let all = self.programs.iter();
        all.fold(words, |words, (counts, command)| words.list(counts).command(command)).0
    }

    pub fn parse(words: &[u32]) -> Option<Request> {
        let mut words = Reading(words);
        let (ctx, world_ctx, parents) = (words.word()?, words.word()?, words.list()?);
        let (node, count) = (words.list()?.first().copied(), words.word()?);
        let one = |_| Some((words.list()?, words.command()?));
        let programs = (0..count).map(one).collect::<Option<Vec<_>>>()?;
        Some(Request { ctx, world_ctx, parents, node, programs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command {
            path: b"/bin/a".to_vec(),
            arguments: vec![b"./a".to_vec(), b"x y".to_vec(), Vec::new(), vec![255]],
            folder: b"/tmp".to_vec(),
            env: vec![b"A=b".to_vec()],
        }
    }

    #[test]
    fn orders_go_through_words_and_back() {
        let started = Started {
            ctx: 40,
            world_ctx: 44,
            appnum: 1,
            root: 2,
            world: vec![5, 4],
            parents: vec![0, 2],
        };
        for order in [Order::Begin(command(), started), Order::End] {
            let words = order.words();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!(Order::of_bytes(&bytes), Some(Order::parse(&words).unwrap()));
            assert_eq!(Order::parse(&words), Some(order));
            for short in 0..words.len() {
                assert_eq!(Order::parse(&words[..short]), None, "{short}");
            }
        }
        for words in [&[][..], &[BEGIN, 9, 1], &[BEGIN, u32::MAX], &[END, 1], &[9]] {
            assert_eq!(Order::parse(words), None);
        }
    }

    #[test]
    fn requests_go_through_words_and_back() {
        for node in [None, Some(0), Some(7)] {
            let request = Request {
                ctx: 40,
                world_ctx: 44,
                parents: vec![3, 1],
                node,
                programs: vec![(vec![4, 2], command()), (vec![1], Command::default())],
            };
            assert_eq!(Request::parse(&request.words()), Some(request));
        }
        assert_eq!(Request::parse(&[1, 2]), None);
    }
}
